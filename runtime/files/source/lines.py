"""Reads the complete lines of an open file as records, from any position on.

The fingerprint of a position is a digest of bytes before it: it tells whether a file still begins with what
was read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

import msgspec

from runtime.batch.varint import NO_FIELD, NO_HEADERS, varint
from runtime.contract.records.job_status import Finding, PartitionState
from runtime.contract.spec.files import LineFormat
from runtime.files.source.known_files import NO_FINGERPRINT
from runtime.files.source.open_file import OpenFile
from runtime.kafka.timing import now_ms

_HASHED: Final = 1_024  # bytes at the beginning of a file, and before the position
_ENDS: Final = (b"\r\n", b"\n")
READ_BYTES: Final = 4 << 20  # of one file, in one transaction


def keyless(timestamp: int, values: Iterable[bytes]) -> list[tuple[int, bytes]]:
    """Returns records of values alone, in the encoding of a batch."""
    return [(timestamp, b"".join((NO_FIELD, varint(len(value)), value, NO_HEADERS))) for value in values]


def fingerprint(file: OpenFile, position: int) -> bytes | None:
    """Returns the fingerprint of an open file at a position.

    None where the file ends before it, or goes on with a line of which only the beginning was read.
    """
    if position == 0:
        return NO_FINGERPRINT
    size = min(position, _HASHED)
    head, tail = file.read(0, size), file.read(position - size, size)
    if len(head) < size or len(tail) < size:
        return None
    if file.complete and tail[-1:] != b"\n":
        behind = file.read(position, 2)
        if behind and not behind.startswith(_ENDS):
            return None
    return hashlib.blake2b(head + tail, digest_size=16).digest()


class ReadRecords(NamedTuple):
    """Records of a file as (timestamp, key, value and headers in the encoding of a batch).

    `position` is behind the last one, and `size` is in bytes of the file. `problem` says why the record at
    `position` is not read: it is not valid, or it is too long. `more` says that the file goes on there.
    """

    records: list[tuple[int, bytes]]
    size: int
    position: int
    problem: Finding | None = None
    more: bool = False


class FileReader(Protocol):
    """Reads the records of one open file.

    While it is midway, going on costs less than coming back later, and the reader holds memory.
    """

    @property
    def midway(self) -> bool: ...

    def size(self) -> int:
        """Returns the position behind all that the file holds. Raises OSError."""

    def problem(self) -> Finding | None:
        """Returns why nothing of the file can be read."""

    def fingerprint(self, position: int) -> bytes | None:
        """Returns the fingerprint at a position; None where the file is not what it was. Raises OSError."""

    def read(self, position: int, longest: int) -> ReadRecords:
        """Returns the next records. `longest` is the size of the longest one. Raises OSError."""


class LineReader:
    """Reads complete lines, about `most` bytes at a time. Each is the value of a record.

    A line ends with a line feed, which a carriage return may precede. What follows the last line feed waits,
    unless the file is complete. Blank lines of the format json are left out.
    """

    midway = False

    def __init__(self, file: OpenFile, form: LineFormat, most: int = READ_BYTES) -> None:
        self._file, self._form, self._most = file, form, most

    def size(self) -> int:
        return self._file.size()

    def problem(self) -> None:
        return None

    def fingerprint(self, position: int) -> bytes | None:
        return fingerprint(self._file, position)

    def read(self, position: int, longest: int) -> ReadRecords:
        file, form, begin = self._file, self._form, position
        position += end_of_last_line(file, position)
        wanted = self._most
        data = file.read(position, wanted)
        if len(data) == wanted <= longest + 1 and b"\n" not in data:  # one long line
            wanted = longest + 2
            data = file.read(position, wanted)
        more = len(data) == wanted
        ends_here = file.complete and not more and not data.endswith(b"\n")
        end = len(data) if ends_here else data.rfind(b"\n") + 1
        if end == 0 and more:
            why = f"the line at byte {position} has no end within {wanted} bytes"
            problem = Finding(PartitionState.RECORD_TOO_LARGE, why)
            return ReadRecords([], position - begin, position, problem, more)
        data = data[:end]
        lines = data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        at_ms = now_ms()
        if (
            form == "text"
            and _is_utf8(data)
            and b"\r" not in data
            and max(map(len, lines), default=0) <= longest
        ):
            at = position + end
            return ReadRecords(keyless(at_ms, lines), at - begin, at, more=more)
        values: list[bytes] = []
        at = position
        for whole in lines:
            line = whole.removesuffix(b"\r")
            if line_problem := _problem(line, form, longest):
                problem = line_problem._replace(why=f"the line at byte {at} {line_problem.why}")
                return ReadRecords(keyless(at_ms, values), at - begin, at, problem, more=True)
            at = min(at + len(whole) + 1, position + end)
            if form == "text" or line.strip():
                values.append(line)
        return ReadRecords(keyless(at_ms, values), at - begin, at, more=more)


def end_of_last_line(file: OpenFile, position: int) -> int:
    """Returns the size of a line feed that ends what was read as the last line of a complete file."""
    if not file.complete or position == 0 or file.read(position - 1, 1) == b"\n":
        return 0
    behind = file.read(position, 2)
    return next((len(end) for end in _ENDS if behind.startswith(end)), 0)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _problem(line: bytes, form: LineFormat, longest: int) -> Finding | None:
    if len(line) > longest:
        why = f"has {len(line)} bytes, and the topic takes records of {longest} bytes"
        return Finding(PartitionState.RECORD_TOO_LARGE, why)
    try:
        line.decode()
    except UnicodeDecodeError as error:
        why = f"is not UTF-8: {error.reason} at its byte {error.start}"
        return Finding(PartitionState.RECORD_CORRUPT, why)
    if form == "json" and line.strip():
        try:
            msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            return Finding(PartitionState.RECORD_CORRUPT, f"is not JSON: {error}")
    return None
