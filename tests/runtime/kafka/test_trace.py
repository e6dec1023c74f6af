"""What `REPL_TRACE` writes can be read, also after a kill, and never into another's file."""

import os
from pathlib import Path

import msgspec
import pytest

from runtime.kafka.trace import Trace, from_environment


def _events(folder: Path) -> list[dict[str, object]]:
    """Returns the events of the only trace of a folder; its array is not closed."""
    (file,) = folder.glob("repl-trace-*.json")
    assert file.stat().st_mode & 0o077 == 0
    text = file.read_bytes().rstrip(b",\n") + b"]"
    return msgspec.json.decode(text, type=list[dict[str, object]])


def test_spans_of_one_track_share_its_name(tmp_path: Path) -> None:
    trace = from_environment({"REPL_TRACE": str(tmp_path)})
    assert trace is not None
    trace.span("broker 1, produce", "produce", 10.0, 10.002, bytes=52)
    trace.span("broker 1, produce", "produce", 11.0, 11.5)
    named, first, second = _events(tmp_path)
    assert named["args"] == {"name": "broker 1, produce"}
    assert first == {
        "name": "produce",
        "ph": "X",
        "ts": 10_000_000,
        "dur": 2_000,
        "pid": os.getpid(),
        "tid": named["tid"],
        "args": {"bytes": 52},
    }
    assert second["tid"] == first["tid"]


def test_a_fork_has_a_file_of_its_own(tmp_path: Path) -> None:
    trace = Trace(tmp_path)
    trace.span("broker 1", "fetch", 10.0, 11.0)
    if (child := os.fork()) == 0:
        trace.span("broker 1", "fetch", 12.0, 13.0)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert len(list(tmp_path.glob("repl-trace-*.json"))) == 2


@pytest.mark.parametrize("value", ["", "0"])
def test_without_the_variable_nothing_is_traced(value: str) -> None:
    assert from_environment({"REPL_TRACE": value}) is None


def test_a_folder_that_is_not_there_fails_nothing(tmp_path: Path) -> None:
    Trace(tmp_path / "missing").span("broker 1", "fetch", 10.0, 11.0)
    assert not list(tmp_path.iterdir())
