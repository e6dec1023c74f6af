"""Reads the lines or rows of a file up to the position that the ledger has, as records to be compared."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from runtime.audit.verify.pieces import RecordContent
from runtime.batch.varint import NO_FIELD, NO_HEADERS, encode_field, read_size, varint
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.spec.files import LinesSpec
from runtime.files.manifest import EndpointUnavailable
from runtime.files.source.known_files import KnownFile
from runtime.files.source.lines import end_of_last_line, fingerprint
from runtime.files.source.open_file import OpenFile
from runtime.files.source.sources import source_of

if TYPE_CHECKING:
    from runtime.files.source.parquet_rows import RowReader

NO_TIME: Final = -2  # of records that have the time of reading
_READ: Final = 8 << 20  # bytes of lines that are read at a time (R8)
_LONGEST: Final = 1 << 30  # of a row: the topic took it
_CHANGED: Final = "it is not the file that was read: it was truncated or overwritten"


class UnreadableFile(Exception):
    """The file can't be read up to its position; the text says why."""


class FileLine(NamedTuple):
    """A line or row: where it begins, its timestamp, and key, value and headers in a batch's encoding."""

    position: int
    timestamp: int
    body: bytes


def digest_of(body: bytes) -> int:
    """Returns eight bytes of a digest."""
    return int.from_bytes(hashlib.blake2b(body, digest_size=8).digest(), signed=True)


def body_of(record: ConsumerRecord) -> bytes:
    """Returns key, value and headers of a record in the encoding of a batch."""
    parts = [encode_field(record.key), encode_field(record.value), varint(len(record.headers))]
    for name, value in record.headers:
        parts += encode_field(name.encode()), encode_field(value)
    return b"".join(parts)


def content_of_body(timestamp: int, body: bytes) -> RecordContent:
    """Returns the parts of a record, as differences show them."""
    key, at = _part(body, 0)
    value, at = _part(body, at)
    count, at = read_size(body, at)
    headers = []
    for _ in range(count):
        name, at = _part(body, at)
        content, at = _part(body, at)
        headers.append(((name or b"").decode(), content))
    return RecordContent.of(timestamp, key, value, headers)


def _part(body: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = read_size(body, at)
    return (None, at) if size < 0 else (body[at : at + size], at + size)


class FileLines:
    """The lines or rows of a file from a position on, up to the one that the ledger has.

    `position` is that of the next line. The file is open from `take` to `close`, and may be opened again.
    """

    def __init__(self, lines: LinesSpec, read: KnownFile, position: int) -> None:
        self._lines, self._read = lines, read
        self._begin = position
        self._file: OpenFile | None = None
        self._following: Iterator[FileLine] = iter(())
        self._next: FileLine | None = None

    @property
    def position(self) -> int:
        if self._file is None:
            return self._begin
        return self._next.position if self._next is not None else self._read.position

    def take(self, end: int, most: int) -> list[FileLine]:
        """Returns at most so many of the next lines, of those that begin before `end`.

        Raises UnreadableFile.
        """
        taken: list[FileLine] = []
        with _explained():
            if self._file is None:
                self._open()
            while self._next is not None and self._next.position < end and len(taken) < most:
                taken.append(self._next)
                self._next = next(self._following, None)
        return taken

    def close(self) -> None:
        if self._file is not None:
            self._begin = self.position
            self._file.close()
            self._file = None

    def _open(self) -> None:
        """Opens the file, and compares its fingerprint. Raises OSError, UnreadableFile."""
        source, end = source_of(self._lines), self._read.position
        try:
            file = source.open(self._read.name)
        except FileNotFoundError:
            what = "renamed" if source.place == "folder" else "deleted"
            raise UnreadableFile(f"the file was {what} meanwhile: run it again") from None
        try:
            if self._lines.format == "parquet":
                rows = _row_reader(file)
                mark, self._following = rows.fingerprint(end), _rows(rows, self._begin, end)
            else:
                mark = fingerprint(file, end)
                self._following = _lines(file, self._begin, end, blank=self._lines.format == "json")
            if mark != self._read.fingerprint:
                raise UnreadableFile(_CHANGED)
            self._next = next(self._following, None)
        except BaseException:
            file.close()
            raise
        self._file = file


@contextmanager
def _explained() -> Iterator[None]:
    """Converts EndpointUnavailable, which concerns all files, and OSError into an UnreadableFile."""
    try:
        yield
    except EndpointUnavailable as error:
        raise UnreadableFile(str(error)) from error
    except OSError as error:
        raise UnreadableFile(error.strerror or str(error)) from error


def _lines(file: OpenFile, begin: int, end: int, *, blank: bool) -> Iterator[FileLine]:
    """Yields the lines before `end`, where one ends. Where `blank`, blank lines are no records."""
    begin += end_of_last_line(file, begin)
    at, rest = begin, b""
    while at < end:
        text = file.read(at, min(_READ, end - at))
        if not text:
            raise UnreadableFile(_CHANGED)
        at += len(text)
        *whole, rest = (rest + text).split(b"\n")
        if at == end and file.complete and rest:
            whole.append(rest)  # its last line, when it was read, had no line feed
            rest = b""
        for text_line in whole:
            line = text_line.removesuffix(b"\r")
            if line.strip() or not blank:
                yield FileLine(begin, NO_TIME, NO_FIELD + encode_field(line) + NO_HEADERS)
            begin += len(text_line) + 1
    if rest:
        raise UnreadableFile(_CHANGED)


def _row_reader(file: OpenFile) -> RowReader:
    """Returns the reader of rows. Raises OSError, UnreadableFile."""
    from runtime.files.source.parquet_rows import RowReader  # only this format loads pyarrow

    reader = RowReader(file)
    if (problem := reader.problem()) is not None:
        raise UnreadableFile(problem.why)
    return reader


def _rows(reader: RowReader, at: int, end: int) -> Iterator[FileLine]:
    timed = reader.timed
    while at < end:
        part = reader.read(at, _LONGEST)
        if part.position == at:
            raise UnreadableFile(part.problem.why if part.problem is not None else _CHANGED)
        for number, (timestamp, body) in enumerate(part.records[: end - at], at):
            yield FileLine(number, timestamp if timed else NO_TIME, body)
        at = part.position
