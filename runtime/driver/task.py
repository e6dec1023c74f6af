"""This module holds what Spark's tasks run, each in a Python worker: slots, and the tasks of rounds.

The driver imports it to name the functions. What a task needs is imported where it runs.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import uvloop
from pyspark import TaskContext

from runtime.driver.process import die_with_parent
from runtime.driver.slots.ticket import decode
from runtime.slot import log
from runtime.slot.errors import SlotEnd

if TYPE_CHECKING:
    from runtime.sql.evaluator import MakeEvaluator


def _begin() -> None:
    """Prepares the Python worker of a task: it ends with its parent, and logs as the driver does.

    What Spark and the slot have imported is never examined for garbage: that would pause a slot for 30 ms.
    """
    die_with_parent(forked_by_one_thread=True)
    log.start(os.environ)
    gc.freeze()


def _run_slot(copy: Callable[[], Coroutine[Any, Any, SlotEnd]]) -> bytes:
    """Runs a slot, and returns its encoded end.

    An attempt that Spark itself repeats ends at once: its ticket may be stale, and only a slot that the
    driver submitted again may initialise the slot's transactional ids again (R3).
    """
    _begin()
    context = TaskContext.get()
    if context is not None and context.attemptNumber() > 0:
        return msgspec.json.encode(SlotEnd("retried", "Spark started the task again by itself"))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return msgspec.json.encode(runner.run(copy()))


def run_task(text: bytes, _: Iterable[bytes]) -> Iterator[bytes]:
    """Runs a slot in a task of mapPartitions and yields its encoded end."""
    from runtime.driver.slots.worker import copy

    yield _run_slot(lambda: copy(decode(text)))


def run_sql_task(text: bytes, make: MakeEvaluator) -> bytes:
    """Runs a slot that evaluates a transform in the collecting worker of a query; returns its encoded end."""
    from runtime.driver.slots.worker import copy_with_sql

    return _run_slot(lambda: copy_with_sql(decode(text), make))


def run_export(tickets: Iterable[bytes]) -> Iterator[bytes]:
    """Runs the tasks of a flow into files. One that Spark repeats by itself stages its files anew."""
    from runtime.files.export import export

    _begin()
    yield from export(tickets)


def run_sql_export(tickets: Sequence[bytes], make: MakeEvaluator) -> bytes:
    """Runs a task of a flow with a transform into files in the collecting worker of its query.

    Each task of the query has one of the tickets. It returns its encoded result. One that Spark repeats by
    itself stages its files anew.
    """
    from runtime.files.export import export_with_sql

    _begin()
    context = TaskContext.get()
    assert context is not None
    return export_with_sql(tickets[context.partitionId()], make)


def run_compact(tickets: Iterable[bytes]) -> Iterator[bytes]:
    """Runs the task that merges small files. One that Spark repeats by itself stages its files anew."""
    from runtime.files.compaction import compact

    _begin()
    yield from compact(tickets)


def run_load(tickets: Iterable[bytes]) -> Iterator[bytes]:
    """Runs the task of a flow from files. One that Spark repeats by itself resumes where the ledger says."""
    from runtime.files.source.load import load

    _begin()
    yield from load(tickets)
