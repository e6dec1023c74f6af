"""Reads the records of a flow's files again, in the order of their offsets, to be compared with the source.

A file must be as the manifest says: its size, its checksum, its number of records, and ascending offsets. A
value that Spark has decoded is compared as the text of its JSON, or as the fields of its struct.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from runtime.audit.verify.pieces import ComparedRecord, RecordContent
from runtime.batch import Batch, BatchFailure, Record, records
from runtime.contract.records.manifest import DataFile
from runtime.contract.spec.files import Format
from runtime.contract.spec.naming import TopicPartition
from runtime.files.backup import DamagedFile, check_file, windows
from runtime.files.manifest import ManifestFolder
from runtime.files.store import StoredFile

_LINES: Final = 1 << 20  # bytes of JSON lines that are read at a time (R8)
_ROWS: Final = 512  # rows of Parquet that are unpacked at a time (R8)


def record_in_files(
    record: Record, value: object, kind: int, *, travels: bool = True, file: str = ""
) -> ComparedRecord:
    """Normalises a record with the value that the files have, at the offset of the source that they name.

    `kind` is the type of its timestamp.
    """
    content = RecordContent.of(record.timestamp, record.key, decoded_value(value), record.headers, kind)
    return ComparedRecord(record.offset, record.offset, content, travels, file)


def decoded_value(value: object) -> bytes | None:
    """Returns a value as bytes that are equal where two values are: what Spark has decoded is not bytes."""
    match value:
        case None:
            return None
        case bytes():
            return value
        case str():
            return value.encode()
        case _:
            return repr(value).encode()


class StoredRecords:
    """The records of some files of a partition, in the order of offsets. It blocks.

    Files of one partition overlap where the layout has dates. A file is open from its first offset on to its
    last one. While records are read, `damage` collects the files that are not as the manifest says, and why,
    without their paths.
    """

    def __init__(
        self, folder: ManifestFolder, files: Iterable[DataFile], form: Format, *, decoded: bool
    ) -> None:
        self.damage: list[tuple[DataFile, str]] = []
        self.bytes = 0  # that were read, for the checksums too
        self._folder, self._form, self._decoded = folder, form, decoded
        self._waiting = sorted(files, key=lambda file: (file.first, file.path), reverse=True)

    def __iter__(self) -> Iterator[ComparedRecord]:
        """Yields the records. Raises OSError where an object store does not answer."""
        opened: list[tuple[int, str, ComparedRecord, Iterator[ComparedRecord]]] = []
        while opened or self._waiting:
            while self._waiting and (not opened or self._waiting[-1].first <= opened[0][0]):
                file = self._waiting.pop()
                self._advance(opened, self._read(file), file.path)
            if opened:
                _, path, record, following = heapq.heappop(opened)
                yield record
                self._advance(opened, following, path)

    @staticmethod
    def _advance(
        opened: list[tuple[int, str, ComparedRecord, Iterator[ComparedRecord]]],
        following: Iterator[ComparedRecord],
        path: str,
    ) -> None:
        if (record := next(following, None)) is not None:
            heapq.heappush(opened, (record.offset, path, record, following))

    def _read(self, file: DataFile) -> Iterator[ComparedRecord]:
        """Yields the records of a file, up to where it is damaged."""
        count, last = 0, file.first - 1
        try:
            path = check_file(self._folder, file)
            self.bytes += 2 * file.size
            for record in _READERS[self._form](file, path, self._decoded):
                if record.offset <= last and count:
                    raise DamagedFile(f"{path} holds the offset {record.offset} behind {last}")
                if not file.first <= record.offset < file.end:
                    expected = f"the offsets {file.first} to {file.end - 1} are expected"
                    raise DamagedFile(f"{path} holds the offset {record.offset}: {expected}")
                count, last = count + 1, record.offset
                yield record
            if count != file.records:
                raise DamagedFile(f"{path} holds {count:,} records in place of {file.records:,}")
        except DamagedFile as damaged:
            why = str(damaged).removeprefix(f"{self._folder.store.path(file.path)} ")
            self.damage.append((file, why))
        except (BatchFailure, msgspec.DecodeError, UnicodeDecodeError) as damaged:
            self.damage.append((file, f"can't be read: {damaged}"))


def _raw(file: DataFile, path: StoredFile, _decoded: bool) -> Iterator[ComparedRecord]:
    where = TopicPartition(file.topic, file.partition)
    for sets in windows(path, where):
        for member in sets:
            kind = int(isinstance(member, Batch) and member.log_append_time)
            for record in records(member, where):
                if record.offset >= file.first:  # a batch before it may be whole
                    yield record_in_files(record, record.value, kind, file=file.path)


class _Header(msgspec.Struct):
    key: str
    value: str | None = None
    value_base64: bytes | None = None


class _Line(msgspec.Struct):
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    headers: list[_Header]
    key: str | None = None
    key_base64: bytes | None = None
    value: msgspec.Raw = msgspec.Raw(b"null")
    value_base64: bytes | None = None


_line = msgspec.json.Decoder(_Line)
_text = msgspec.json.Decoder(str)


def _json(file: DataFile, path: StoredFile, decoded: bool) -> Iterator[ComparedRecord]:
    for line in map(_line.decode, _lines(path)):
        _check_place(file, path, line.topic, line.partition, line.offset)
        headers = tuple((header.key, _bytes(header.value, header.value_base64)) for header in line.headers)
        key = _bytes(line.key, line.key_base64)
        text, value = bytes(line.value), line.value_base64
        if value is None and text != b"null":
            value = text if decoded or not text.startswith(b'"') else _text.decode(text).encode()
        record = Record(line.offset, line.timestamp, key, None, headers)
        yield record_in_files(record, value, line.timestamp_type, file=file.path)


def _bytes(text: str | None, content: bytes | None) -> bytes | None:
    return text.encode() if text is not None else content


def _lines(path: StoredFile) -> Iterator[bytes]:
    with path.open() as file:
        rest = b""
        while text := file.read(_LINES):
            *whole, rest = (rest + text).split(b"\n")
            yield from whole
    if rest:
        raise DamagedFile(f"{path} ends inside a line: restore it from a copy")


def _parquet(file: DataFile, path: StoredFile, _decoded: bool) -> Iterator[ComparedRecord]:
    import pyarrow as pa  # only this format loads it
    import pyarrow.parquet as pq

    try:
        with path.open() as opened, pq.ParquetFile(opened, pre_buffer=False) as rows:
            for batch in rows.iter_batches(_ROWS, use_threads=False):
                yield from _rows_of(batch, file, path)
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise DamagedFile(f"{path} can't be read as Parquet: {' '.join(str(error).split())}") from error


def _rows_of(batch: Any, file: DataFile, path: StoredFile) -> Iterator[ComparedRecord]:
    import pyarrow as pa

    columns: Mapping[str, Sequence[Any]] = {
        name: (batch.column(name).cast(pa.int64()) if name == "timestamp" else batch.column(name)).to_pylist()
        for name in batch.schema.names
    }
    for at in range(batch.num_rows):
        offset = columns["offset"][at]
        _check_place(file, path, columns["topic"][at], columns["partition"][at], offset)
        headers = tuple((header["key"], header["value"]) for header in columns["headers"][at])
        time = columns["timestamp"][at]
        record = Record(offset, time if time is not None else -1, columns["key"][at], None, headers)
        yield record_in_files(record, columns["value"][at], columns["timestamp_type"][at], file=file.path)


def _check_place(file: DataFile, path: StoredFile, topic: str, partition: int, offset: int) -> None:
    if (topic, partition) != (file.topic, file.partition):
        raise DamagedFile(
            f"{path} holds the offset {offset} of {topic}-{partition}, which is not of"
            f" {file.topic}-{file.partition}"
        )


_Reader = Callable[[DataFile, StoredFile, bool], Iterator[ComparedRecord]]
_READERS: Final[Mapping[Format, _Reader]] = {"raw": _raw, "json": _json, "parquet": _parquet}
