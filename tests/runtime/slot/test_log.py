"""One line for each decision: escaped, in text or JSON, and never a flood."""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.contract.records.job_status import PartitionState as State
from runtime.slot import log
from runtime.slot.log import RateLimit, log_event
from runtime.slot.partition import SessionAnswers, SourceLog
from tests.fakes.partition import partition

Log = Callable[..., list[str]]


@pytest.fixture
def lines() -> Iterator[Log]:
    """lines(log_event, …) → the lines that a call writes, in a process with these settings."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)

    def written(
        call: Callable[..., None], *event: Any, environ: dict[str, str] | None = None, **fields: Any
    ) -> list[str]:
        log.start(environ or {}, writing)
        call(*event, **fields)
        return os.read(reading, 1 << 20).decode("ascii").splitlines()

    yield written
    log.stop()
    os.close(reading)
    os.close(writing)


JSON = {"REPL_LOG": "json"}


def test_a_line_is_text_by_default(lines: Log) -> None:
    (line,) = lines(log_event, "retry", flow="one", topic="orders", partition=3, error="no leader", left=None)
    moment, rest = line.split(" ", 1)
    assert moment.endswith("Z")
    assert rest == 'repl INFO retry flow=one topic=orders partition=3 error="no leader"'


def test_a_line_is_json_where_the_environment_sets_it(lines: Log) -> None:
    (line,) = lines(log_event, "assignment", environ=JSON, slot=0, version=2)
    found = json.loads(line)
    assert found.pop("time")
    assert found == {"level": "INFO", "event": "assignment", "slot": 0, "version": 2}


@pytest.mark.parametrize("environ", [{}, JSON], ids=["text", "json"])
@pytest.mark.parametrize("hostile", ["a\nrepl INFO forged", "\x1b]52;c;x\x07", "\x7f", "ü\u202e", "\r"])
def test_hostile_values_forge_no_line_and_reach_no_terminal(
    lines: Log, environ: dict[str, str], hostile: str
) -> None:
    (line,) = lines(log_event, "transaction_failed", environ=environ, error=hostile)
    assert line.isprintable()


def test_a_failure_has_its_traceback_in_its_line(lines: Log) -> None:
    try:
        raise KeyError("what")
    except KeyError as error:
        (line,) = lines(log_event, "slot_failed", environ=JSON, trace=error)
    assert "KeyError: 'what'" in json.loads(line)["traceback"]


def test_a_process_that_did_not_open_the_log_writes_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    log_event("driver_started", job="one")
    assert capfd.readouterr().err == ""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_lines_are_limited_by_event_and_key_and_suppressed_ones_are_counted() -> None:
    clock = Clock()
    left: list[tuple[str, int]] = []
    limit = RateLimit(lambda *one: left.append(one), of_key=2, of_event=5, window_s=10, clock=clock)
    assert [limit.take("retry", "a") for _ in range(4)] == [0, 0, None, None]
    assert limit.take("retry", "b") == 2
    assert limit.take("other", "a") == 0
    assert [limit.take("retry", key) for key in "cdef"] == [0, 0, None, None]
    clock.now = 10.0
    assert limit.take("retry", "a") == 2
    for number in range(10_001):  # whatever the keys are, they take a bounded memory
        limit.take("many", str(number))
    assert len(limit._counts) < 10_000
    assert not left


def test_suppressed_lines_are_counted_when_no_line_follows() -> None:
    left: list[tuple[str, int]] = []
    limit = RateLimit(lambda *one: left.append(one), of_key=1)
    for _ in range(5):
        limit.take("retry", "a")
    limit.over("retry")
    limit.over("retry")
    assert left == [("retry", 4)]


def test_changes_between_copying_and_caught_up_are_not_logged(lines: Log) -> None:
    copy = partition()

    def change() -> None:
        copy.resume()
        for end in (20, copy.progress.position, 20):
            copy.answered(SourceLog(0, end, end), SessionAnswers(), 1)
            copy.settle()
        copy.halt(State.DATA_LOSS, "gone")

    first, last = lines(change)
    assert "partition_state flow=flow topic=orders partition=0" in first
    assert "state=copying before=starting" in first
    assert "state=data_loss before=copying why=gone" in last


def test_every_event_is_in_the_page_of_the_log() -> None:
    root = Path(__file__).parents[3]
    page = (root / "docs" / "job-log.md").read_text()
    called = re.compile(
        r"(?:log_event|log_fields|log\.(?:info|warning|error)|self\._log)\(\s*(f?\"[a-z_{}]+\")"
    )
    events = {
        event
        for room in ("slot", "ledger", "driver")
        for module in (root / "runtime" / room).rglob("*.py")
        for event in called.findall(module.read_text())
    }
    assert len(events) > 25
    named = {event.strip('"') for event in events if not event.startswith("f")}
    assert not {event for event in named if f"`{event}`" not in page}
