"""Writes what a process waits for at brokers as a trace, which Perfetto and Chrome's trace viewer show.

`REPL_TRACE=1` in the environment of a process makes `repl-trace-PID-TIME.json` in the folder for temporary
files; a folder as the value is used instead. The file is an array of JSON events without its closing bracket,
as the format allows, so that a killed process leaves a readable one. Times are those of the machine's
monotonic clock: traces of several processes of one machine can be shown as one.
"""

from __future__ import annotations

import atexit
import os
import tempfile
import time
from collections.abc import Mapping
from io import FileIO
from pathlib import Path

import msgspec

VARIABLE = "REPL_TRACE"
_MAX_BYTES = 512 << 20
_FLUSH_S = 0.2
_FLUSH_BYTES = 1 << 20


class Trace:
    """A trace writes spans on tracks: a track is a connection or a lane.

    It names requests, sizes and tracks, never what a request holds.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: FileIO | None = None
        self._pid = 0
        self._tracks: dict[str, int] = {}
        self._unwritten: list[bytes] = []
        self._unwritten_bytes = 0
        self._written = 0
        self._flushed_at = 0.0

    def span(self, track: str, name: str, began: float, ended: float, **details: int) -> None:
        """Writes a span; its times are those of `time.monotonic`."""
        pid = os.getpid()
        if pid != self._pid:  # a worker of Spark is a fork
            self._begin(pid)
        number = self._tracks.get(track)
        if number is None:
            number = self._tracks[track] = len(self._tracks) + 1
            named = {"name": "thread_name", "ph": "M", "pid": pid, "tid": number, "args": {"name": track}}
            self._add(named)
        microseconds = {"ts": round(began * 1e6), "dur": round((ended - began) * 1e6)}
        self._add({"name": name, "ph": "X", **microseconds, "pid": pid, "tid": number, "args": details})
        if ended - self._flushed_at > _FLUSH_S or self._unwritten_bytes > _FLUSH_BYTES:
            self._flush(ended)

    def _begin(self, pid: int) -> None:
        """Makes the file of this process. One that is there already is another's, and stays."""
        self._pid, self._file, self._written = pid, None, 0
        self._tracks.clear()
        self._unwritten, self._unwritten_bytes = [b"[\n"], 2
        path = self._folder / f"repl-trace-{pid}-{time.time_ns()}.json"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._file = FileIO(os.open(path, flags, 0o600), "w")
        except OSError:
            return  # tracing must not fail what it watches
        atexit.register(self._flush, 0.0)

    def _add(self, event: Mapping[str, object]) -> None:
        line = msgspec.json.encode(event) + b",\n"
        self._unwritten.append(line)
        self._unwritten_bytes += len(line)

    def _flush(self, now: float) -> None:
        text = b"".join(self._unwritten)
        self._unwritten, self._unwritten_bytes, self._flushed_at = [], 0, now
        if self._file is None:
            return
        try:
            self._file.write(text)
        except OSError:
            self._file = None
            return
        self._written += len(text)
        if self._written > _MAX_BYTES:
            self._file.close()
            self._file = None


def from_environment(environ: Mapping[str, str]) -> Trace | None:
    """Returns the trace that the environment asks for."""
    value = environ.get(VARIABLE, "")
    if value in ("", "0"):
        return None
    return Trace(Path(tempfile.gettempdir() if value == "1" else value))


TRACE = from_environment(os.environ)
