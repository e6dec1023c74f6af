"""The outcome of a command's Spark application, as the command reads it."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.errors import AnalysisException

from runtime.audit.ledger import AuditFailure, SparkOutcome
from runtime.audit.on_spark import results_of, run_application
from runtime.sql.formats.encoded import BadSchema
from runtime.sql.functions import RefusedExpression

JAVA = "An error occurred while calling o1.collect.\n: java.io.IOException: no space left\n\tat java.base"


@pytest.mark.parametrize(
    ("ended", "outcome"),
    [
        (SparkOutcome(result=[3, 4]), SparkOutcome(result=[3, 4])),
        (SparkOutcome(why="the backup: it is gone"), SparkOutcome(why="the backup: it is gone")),
        (AuditFailure("dc1", "it does not answer", "is it up?"), ("dc1", "it does not answer", "is it up?")),
        (AnalysisException(JAVA), ("Spark", "java.io.IOException: no space left", "")),
        (BadSchema("no message\nCustomer"), ("Spark", "no message", "")),
        (RefusedExpression(""), ("Spark", "RefusedExpression", "")),
        (BadSchema("x" * 600), ("Spark", "x" * 500, "")),
    ],
)
def test_an_application_writes_what_became_of_it(
    tmp_path: Path,
    ended: SparkOutcome[list[int]] | Exception,
    outcome: SparkOutcome[list[int]] | tuple[str, str, str],
) -> None:
    def run(_: argparse.Namespace) -> SparkOutcome[list[int]]:
        if isinstance(ended, Exception):
            raise ended
        return ended

    if isinstance(outcome, tuple):
        cluster, why, hint = outcome
        outcome = SparkOutcome(cluster=cluster, why=why, hint=hint)
    assert run_application(argparse.Namespace(out=tmp_path / "out.json"), run) == outcome
    assert msgspec.json.decode((tmp_path / "out.json").read_bytes(), type=SparkOutcome[list[int]]) == outcome


def test_an_unexpected_error_is_no_outcome(tmp_path: Path) -> None:
    def run(_: argparse.Namespace) -> SparkOutcome[list[int]]:
        raise KeyError("a defect")

    with pytest.raises(KeyError):
        run_application(argparse.Namespace(out=tmp_path / "out.json"), run)
    assert not list(tmp_path.iterdir())


@dataclass(slots=True)
class Threads:
    """A Spark context whose tasks run in the threads that submit them."""

    defaultParallelism: int  # noqa: N815 - Spark's own name
    task: Callable[[Iterable[bytes]], Iterator[bytes]] | None = None
    groups: Sequence[bytes] = field(default_factory=list)

    def parallelize(self, groups: Sequence[bytes], _slices: int) -> Any:
        return Threads(self.defaultParallelism, groups=groups)

    def mapPartitions(self, task: Callable[[Iterable[bytes]], Iterator[bytes]]) -> Any:  # noqa: N802
        return Threads(self.defaultParallelism, task, self.groups)

    def collect(self) -> list[bytes]:
        assert self.task is not None
        return list(self.task(self.groups))


async def reverse(group: bytes, _evaluator: object) -> bytes:
    return group[::-1]


@pytest.mark.parametrize("cores", [1, 3])
def test_each_result_has_the_number_of_its_group(cores: int) -> None:
    context: Any = Threads(cores)
    results = dict(results_of(context, reverse, [b"ab", b"cd", b"ef", b"gh"]))
    assert results == {0: b"ba", 1: b"dc", 2: b"fe", 3: b"hg"}


def test_behind_a_failure_no_other_group_is_begun() -> None:
    begun: list[bytes] = []
    read, failed = threading.Event(), threading.Event()

    async def work(group: bytes, _evaluator: object) -> bytes:
        begun.append(group)
        if group == b"fails":
            read.wait(30)
            raise ValueError("a defect")
        if len(begun) > 2:
            failed.wait(30)  # it runs while the others are given up
        return group[::-1]

    context: Any = Threads(1)
    before = threading.enumerate()
    results = results_of(context, work, [b"ab", b"fails", *[b"cd"] * 50])
    try:
        assert next(results) == (0, b"ba")
        read.set()
        with pytest.raises(ValueError, match="a defect"):
            next(results)
        assert list(results) == []
    finally:
        read.set()
        failed.set()
        for thread in set(threading.enumerate()).difference(before):
            thread.join(30)
    assert len(begun) <= 3
