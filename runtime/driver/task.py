"""What runs in a Spark task's Python worker: one slot, and its end of the channel to the driver."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, Protocol

import msgspec
import uvloop
from pyspark import TaskContext

from runtime.contract.records import control, job_status
from runtime.contract.records.job_status import SlotKey, SlotReport
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.records.status import SlotStatus
from runtime.contract.spec import assignment, naming
from runtime.contract.spec.assignment import Assignment, SlotSpec, client_id
from runtime.driver.parent import die_with_parent
from runtime.driver.slots.channel import Tail, pause, post
from runtime.kafka.cluster import Cluster
from runtime.kafka.errors import WireError
from runtime.kafka.spec_clusters import named, opened
from runtime.ledger.records import Record
from runtime.slot import log
from runtime.slot.slot import Fenced, Outdated, Slot, SlotEnd, Stopped

_LOOK_S = 0.1  # for a version that came into force: the driver waits for it
_REPORT_S = 1.0
_AGAIN_S = 5.0  # nothing new is said again so often: a report's age tells whether the slot lives
_PAUSE_S = 0.5


class Ticket(msgspec.Struct, frozen=True):
    """Everything a slot starts with; made anew for each submission, so it is never stale (fencing 3).

    `control_offset`: words written from there on are newer than `first`.
    """

    driver: str
    attempt: int
    spec: SlotSpec
    first: Assignment
    control_offset: int


class Ended(msgspec.Struct, frozen=True):
    how: Literal["stopped", "fenced", "outdated", "failed", "retried"]
    why: str = ""


def encode(ticket: Ticket) -> bytes:
    return zlib.compress(msgspec.json.encode(ticket), 1)


def decode(text: bytes) -> Ticket:
    return msgspec.json.decode(zlib.decompress(text), type=Ticket)


def run_task(text: bytes, _: Iterable[int]) -> Iterator[bytes]:
    """For mapPartitions. An attempt that Spark itself repeats ends at once: what it carries may be stale, and
    only what the driver submitted again may initialise the slot's ids again (R3).
    """
    die_with_parent(forked_by_one_thread=True)
    log.start(os.environ)
    context = TaskContext.get()
    if context is not None and context.attemptNumber() > 0:
        ended = Ended("retried", "Spark started the task again by itself")
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            ended = runner.run(_copy(decode(text)))
    yield msgspec.json.encode(ended)


async def _copy(ticket: Ticket) -> Ended:
    slot = Slot(ticket.spec, ticket.first)
    return await run_with_channel(slot, _Line(ticket, slot))


class Channel(Protocol):
    """The slot's end of the channel to the driver."""

    async def run(self) -> None: ...


async def run_with_channel(slot: Slot, line: Channel) -> Ended:
    """Runs the slot until it ends. It fails with its channel: no command would reach it any more."""
    talking = asyncio.create_task(line.run())
    talking.add_done_callback(lambda _: slot.stop())
    try:
        ended = _ended(await slot.run())
        if talking.done():  # it never ends by itself: the slot was stopped because its channel failed
            talking.result()
        return ended
    except Exception as error:  # noqa: BLE001 - the process ends; the driver says why, and submits the slot again
        log.log_event("slot_failed", level=logging.ERROR, trace=error, error=str(error))
        return Ended("failed", f"{type(error).__name__}: {error}")
    finally:
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)


def _ended(end: SlotEnd) -> Ended:
    match end:
        case Stopped():
            return Ended("stopped")
        case Fenced(why):
            return Ended("fenced", why)
        case Outdated(why):
            return Ended("outdated", why)


async def listen(tail: Tail, ticket: Ticket, slot: Slot, heard: Callable[[int], None]) -> None:
    """The driver's words to the slot are carried out as they come; a record that can't be read is skipped.

    `heard` gets the version of each assignment before the slot does.
    """
    mine = control.slot_key(ticket.spec.job, ticket.spec.slot)
    while True:
        try:
            found = await tail.read()
        except WireError:
            await asyncio.sleep(_PAUSE_S)
            continue
        for record in found:
            if record.key == mine and record.value is not None:
                try:
                    _obey(control.decode_word(record.value), ticket.driver, slot, heard)
                except UnreadableValue as error:
                    tail.skipped.add(record.offset, str(error))


def _obey(word: control.Word, driver: str, slot: Slot, heard: Callable[[int], None]) -> None:
    """Raises UnreadableValue. A word of another driver is none to this slot."""
    if word.driver != driver:
        return
    match word:
        case control.Assign(assignment=text):
            given = assignment.decode(bytes(text))
            heard(given.version)
            slot.assign(given)
        case control.StopSlot():
            slot.stop()


class _Line:
    """The slot's end of the channel. What goes wrong here is tried again and never disturbs the copying."""

    def __init__(self, ticket: Ticket, slot: Slot) -> None:
        self._ticket = ticket
        self._slot = slot
        spec = ticket.spec
        self._key = job_status.encode_key(SlotKey(spec.job, spec.slot))
        self._newest = ticket.first.version
        self._told = asyncio.Event()

    async def run(self) -> None:
        while True:
            with contextlib.suppress(WireError):
                async with await self._opened() as cluster:
                    await asyncio.gather(self._listen(cluster), self._report(cluster))
            await asyncio.sleep(_PAUSE_S)

    async def _opened(self) -> Cluster:
        spec = self._ticket.spec
        return await opened(spec.destination, named(spec.cluster, client_id(spec.job, spec.slot)), os.environ)

    async def _listen(self, cluster: Cluster) -> None:
        tail = Tail(cluster, naming.CONTROL, self._ticket.control_offset)
        await listen(tail, self._ticket, self._slot, self._heard)

    def _heard(self, version: int) -> None:
        self._newest = max(self._newest, version)
        self._told.set()

    async def _report(self, cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        said: SlotStatus | None = None
        said_at = -_AGAIN_S
        while True:
            status = self._slot.status()
            due = loop.time() - said_at
            news = said is None or status.assignment != said.assignment
            if news or due >= _AGAIN_S or (due >= _REPORT_S and _differs(status, said)):
                report = SlotReport(self._ticket.driver, self._ticket.attempt, status)
                try:
                    await post(cluster, naming.STATUS, [Record(self._key, job_status.encode(report))])
                except WireError:
                    await asyncio.sleep(_PAUSE_S)
                    continue
                said, said_at = status, loop.time()
            self._told.clear()
            await pause(_REPORT_S if status.assignment >= self._newest else _LOOK_S, self._told)


def _differs(status: SlotStatus, said: SlotStatus | None) -> bool:
    return said is None or (status.flows, status.partitions) != (said.flows, said.partitions)
