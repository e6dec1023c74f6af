"""Writes one structured line to stderr for each decision of a slot or a driver.

A process opens the log once, with `start`. Before that, and in a process that uses these packages as a
library, no line is written. A line is text (`time level event key=value …`), or JSON if the environment
sets `REPL_LOG=json`. Values are escaped, so that a line holds only printable ASCII. Values are names,
numbers, offsets and error texts, never a setting of a client. See docs/job-log.md for the events.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from msgspec import Struct

FORMAT_KEY = "REPL_LOG"
_LOGGER = logging.getLogger("repl.events")
_LOGGER.addHandler(logging.NullHandler())
_MAX_LENGTH = 2_000  # Characters of a value.
_PLAIN = re.compile(r"[A-Za-z0-9_.:/@%+,\-]+")

Field = str | int | float | bool | None


class _Count(Struct):
    """The number of lines of one kind in a window that began at `since`."""

    since: float
    written: int = 0

    def add(self) -> None:
        """Counts a line."""
        self.written += 1


class RateLimit:
    """A rate limit decides which lines are written: a few per event and key, and not too many per event.

    Lines that are not written are counted. The event's next line carries the count. Without a next line,
    `flush` is called when the window is over.
    """

    def __init__(
        self,
        flush: Callable[[str, int], None],
        *,
        of_key: int = 3,
        of_event: int = 100,
        window_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._flush = flush
        self._of_key = of_key
        self._of_event = of_event
        self._window_s = window_s
        self._clock = clock
        self._counts: dict[tuple[str, str | None], _Count] = {}
        self._suppressed: dict[str, int] = {}
        self._timers: dict[str, threading.Timer] = {}
        self._lock = threading.Lock()

    def take(self, event: str, key: str) -> int | None:
        """Returns how many lines of the event were suppressed before, or None to suppress this one."""
        with self._lock:
            of_event, of_key = self._count(event, None), self._count(event, key)
            if of_key.written < self._of_key and of_event.written < self._of_event:
                of_event.add()
                of_key.add()
                return self._suppressed.pop(event, 0)
            self._suppressed[event] = self._suppressed.get(event, 0) + 1
            if event not in self._timers:
                timer = self._timers[event] = threading.Timer(self._window_s, self.over, (event,))
                timer.daemon = True
                timer.start()
            return None

    def over(self, event: str) -> None:
        """Ends the window of an event, and flushes the count of its suppressed lines."""
        with self._lock:
            self._timers.pop(event, None)
            left_out = self._suppressed.pop(event, 0)
            now = self._clock()
            self._counts = {
                counted: count
                for counted, count in self._counts.items()
                if now - count.since < self._window_s
            }
        if left_out:
            self._flush(event, left_out)

    def clear(self) -> None:
        """Resets all counts and cancels the timers."""
        with self._lock:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()
            self._counts.clear()
            self._suppressed.clear()

    def _count(self, event: str, key: str | None) -> _Count:
        now = self._clock()
        count = self._counts.get((event, key))
        if count is None or now - count.since >= self._window_s:
            count = self._counts[event, key] = _Count(now)
            if len(self._counts) > 10_000:
                self._counts = {(event, key): count}
        return count


_limit = RateLimit(lambda event, count: _write(logging.INFO, event, {"suppressed": count}))


def log_event(
    event: str,
    /,
    *,
    key: str = "",
    level: int = logging.INFO,
    trace: BaseException | None = None,
    **fields: Field,
) -> None:
    """Writes one line.

    The rate of lines is limited per event, and per event and `key`. Fields without a value are omitted.
    """
    if _LOGGER.isEnabledFor(level):
        log_fields(event, fields, key=key, level=level, trace=trace)


def info(event: str, /, *, key: str = "", trace: BaseException | None = None, **fields: Field) -> None:
    """Writes one line of level INFO; see `log_event`."""
    log_event(event, key=key, level=logging.INFO, trace=trace, **fields)


def warning(event: str, /, *, key: str = "", trace: BaseException | None = None, **fields: Field) -> None:
    """Writes one line of level WARNING; see `log_event`."""
    log_event(event, key=key, level=logging.WARNING, trace=trace, **fields)


def error(event: str, /, *, key: str = "", trace: BaseException | None = None, **fields: Field) -> None:
    """Writes one line of level ERROR; see `log_event`."""
    log_event(event, key=key, level=logging.ERROR, trace=trace, **fields)


def log_fields(
    event: str,
    fields: Mapping[str, Field],
    *,
    key: str = "",
    level: int = logging.INFO,
    trace: BaseException | None = None,
) -> None:
    """Writes one line from a mapping of fields; see `log_event`."""
    suppressed = _limit.take(event, key) if _LOGGER.isEnabledFor(level) else None
    if suppressed is None:
        return
    given = dict(fields)
    if trace is not None:
        given["traceback"] = "".join(traceback.format_exception(trace))[-_MAX_LENGTH:]
    if suppressed:
        given["suppressed"] = suppressed
    _write(level, event, given)


def _write(level: int, event: str, fields: Mapping[str, Field]) -> None:
    present = {name: value for name, value in fields.items() if value is not None and value != ""}
    _LOGGER.log(level, event, extra={"fields": present})


def start(environ: Mapping[str, str], descriptor: int = 2) -> None:
    """Opens the log; each line is one write, so that the lines of several processes do not mix."""
    stop()
    made = _Descriptor(descriptor)
    made.setFormatter(JsonLines() if environ.get(FORMAT_KEY) == "json" else TextLines())
    _LOGGER.addHandler(made)
    _LOGGER.setLevel(logging.INFO)
    _LOGGER.propagate = False


def stop() -> None:
    """Closes the log; later lines are discarded."""
    for handler in list(_LOGGER.handlers):
        _LOGGER.removeHandler(handler)
    _LOGGER.addHandler(logging.NullHandler())
    _LOGGER.setLevel(logging.NOTSET)
    _limit.clear()


class _Descriptor(logging.Handler):
    """A handler that writes each line to a file descriptor in one write."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one formatted record."""
        with contextlib.suppress(OSError):  # Copying continues when the log's reader is gone.
            os.write(self._descriptor, self.format(record).encode("ascii") + b"\n")


class TextLines(logging.Formatter):
    """Formats a record as `time repl level event key=value …`."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line without its newline."""
        fields = " ".join(f"{name}={_word(value)}" for name, value in fields_of(record).items())
        return f"{_time(record)} repl {record.levelname} {record.getMessage()} {fields}".rstrip()


class JsonLines(logging.Formatter):
    """Formats a record as a JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line without its newline."""
        head = {"time": _time(record), "level": record.levelname, "event": record.getMessage()}
        return _json({**head, **{name: _cut(value) for name, value in fields_of(record).items()}})


def fields_of(record: logging.LogRecord) -> Mapping[str, Field]:
    """Returns the fields of a record that this module has logged."""
    fields: Mapping[str, Field] = getattr(record, "fields", {})
    return fields


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}Z"


def _word(value: Field) -> str:
    """Returns a plain word unchanged, and any other value as a JSON string without control characters."""
    text = str(_cut(value)).lower() if isinstance(value, bool) else str(_cut(value))
    return text if _PLAIN.fullmatch(text) else _json(text)


def _json(value: object) -> str:
    """Returns ASCII JSON, with DEL escaped as well, the one control character that JSON does not escape."""
    return json.dumps(value).replace("\x7f", "\\u007f")


def _cut(value: Field) -> Field:
    if isinstance(value, str) and len(value) > _MAX_LENGTH:
        return value[:_MAX_LENGTH] + "…"
    return value


def log_driver_message(text: str) -> None:
    """Logs one message."""
    log_event("driver_message", key=text, message=text)
