"""Reads the lines or rows of a file up to the position that the ledger has, as records to be compared.

Of each record only a digest and its position are held, and a timestamp where rows have some: 16 or 24 bytes.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from runtime.audit.verify.pieces import RecordContent, condensed
from runtime.batch import Record
from runtime.batch.varint import read_size, varint
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.spec.files import LinesSpec
from runtime.files.manifest import EndpointUnavailable
from runtime.files.source.known_files import KnownFile
from runtime.files.source.lines import NO_HEADERS, NO_KEY, fingerprint, sized
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


def digest_of(body: bytes) -> int:
    """Returns eight bytes of a digest. `body` has key, value and headers in the encoding of a batch."""
    return int.from_bytes(hashlib.blake2b(body, digest_size=8).digest(), signed=True)


def body_of(record: Record | ConsumerRecord) -> bytes:
    """Returns key, value and headers of a record in the encoding of a batch."""
    parts = [sized(record.key), sized(record.value), varint(len(record.headers))]
    for name, value in record.headers:
        parts += sized(name.encode()), sized(value)
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


class FileRecords(Struct):
    """The records of a file: their digests, and the positions at which they begin.

    `times` are the timestamps of rows that have some of their own.
    """

    lines: LinesSpec
    read: KnownFile
    timed: bool  # rows have timestamps of their own
    digests: array[int] = field(default_factory=lambda: array("q"))
    positions: array[int] = field(default_factory=lambda: array("q"))
    times: array[int] = field(default_factory=lambda: array("q"))

    def position(self, number: int) -> int:
        """Returns where a record begins; behind the last one, where reading ended."""
        return self.positions[number] if number < len(self.positions) else self.read.position

    def content(self, number: int) -> RecordContent:
        """Returns a record. Raises UnreadableFile."""
        position = self.positions[number]
        with _explained(), _opened(self.lines, self.read) as file:
            if self.lines.format != "parquet":
                size = self.position(number + 1) - position
                line = file.read(position, size).split(b"\n")[0].removesuffix(b"\r")
                return RecordContent(NO_TIME, None, condensed(line), ())
            rows = _row_reader(file).read(position, _LONGEST)
            if not rows.records:
                raise UnreadableFile(rows.why or _CHANGED)
            timestamp, body = rows.records[0]
            return content_of_body(timestamp if self.timed else NO_TIME, body)


def records_up_to(lines: LinesSpec, read: KnownFile, *, timed: bool) -> FileRecords:
    """Reads a file up to its position. Raises UnreadableFile.

    `timed` says whether the timestamps of rows count: a topic may replace them.
    """
    with _explained(), _opened(lines, read) as file:
        if lines.format != "parquet":
            if fingerprint(file, read.position) != read.fingerprint:
                raise UnreadableFile(_CHANGED)
            file_records = FileRecords(lines, read, timed=False)
            _read_lines(file, file_records)
            return file_records
        reader = _row_reader(file)
        if reader.fingerprint(read.position) != read.fingerprint:
            raise UnreadableFile(_CHANGED)
        file_records = FileRecords(lines, read, timed=timed and reader.timed)
        _read_rows(reader, file_records)
        return file_records


def _opened(lines: LinesSpec, read: KnownFile) -> OpenFile:
    source = source_of(lines)
    try:
        return source.open(read.name)
    except FileNotFoundError:
        what = "renamed" if source.place == "folder" else "deleted"
        raise UnreadableFile(f"the file was {what} meanwhile: run it again") from None


@contextmanager
def _explained() -> Iterator[None]:
    """Converts EndpointUnavailable, which concerns all files, and OSError into an UnreadableFile."""
    try:
        yield
    except EndpointUnavailable as error:
        raise UnreadableFile(str(error)) from error
    except OSError as error:
        raise UnreadableFile(error.strerror or str(error)) from error


def _read_lines(file: OpenFile, records: FileRecords) -> None:
    """Reads the lines before the position, where one ends. Blank lines of the format json are no records."""
    at, end, rest = 0, records.read.position, b""
    blank = records.lines.format == "json"
    begin = 0
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
                records.digests.append(digest_of(NO_KEY + sized(line) + NO_HEADERS))
                records.positions.append(begin)
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


def _read_rows(reader: RowReader, records: FileRecords) -> None:
    at, end = 0, records.read.position
    while at < end:
        part = reader.read(at, _LONGEST)
        if part.position == at:
            raise UnreadableFile(part.why or _CHANGED)
        for number, (timestamp, body) in enumerate(part.records, at):
            if number < end:
                records.digests.append(digest_of(body))
                records.positions.append(number)
                if records.timed:
                    records.times.append(timestamp)
        at = part.position
