"""Reads the records of a flow's files again, in the order of their offsets, to be compared with the source.

A file must be as the manifest says: its size, its checksum, its number of records, and ascending offsets. A
value that Spark has decoded is compared as the text of its JSON, or as the fields of its struct.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from runtime.audit.verify.pieces import RecordContent, condensed
from runtime.batch import Batch, BatchFailure, PartitionLocation, Record, records
from runtime.contract.records.manifest import DataFile
from runtime.contract.spec.files import Format
from runtime.files.backup import DamagedFile, check_file, windows
from runtime.files.manifest import ManifestFolder
from runtime.files.store import StoredFile

_LINES: Final = 1 << 20  # bytes of JSON lines that are read at a time (R8)
_ROWS: Final = 512  # rows of Parquet that are unpacked at a time (R8)


class FileRecord(NamedTuple):
    """A record of a file. `kind` is the type of its timestamp: 0 set by the producer, 1 by the broker.

    `path` names the file.
    """

    offset: int
    kind: int
    content: RecordContent
    path: str


class FileDamage(NamedTuple):
    """A file that is not as the manifest says, and why, without its path.

    Its records `first … end-1` can't be compared.
    """

    file: DataFile
    why: str


def content_in_files(one: Record, value: bytes | None) -> RecordContent:
    """Returns every part of a record that must be equal, with the value that the files have."""
    headers = tuple((name, condensed(content)) for name, content in one.headers)
    return RecordContent(one.timestamp, condensed(one.key), condensed(value), headers)


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
    last one. `damage` grows while records are read.
    """

    def __init__(
        self, folder: ManifestFolder, files: Iterable[DataFile], form: Format, *, decoded: bool
    ) -> None:
        self.damage: list[FileDamage] = []
        self.bytes = 0  # that were read, for the checksums too
        self._folder, self._form, self._decoded = folder, form, decoded
        self._waiting = sorted(files, key=lambda one: (one.first, one.path), reverse=True)

    def __iter__(self) -> Iterator[FileRecord]:
        """Yields the records. Raises OSError where an object store does not answer."""
        opened: list[tuple[int, str, FileRecord, Iterator[FileRecord]]] = []
        while opened or self._waiting:
            while self._waiting and (not opened or self._waiting[-1].first <= opened[0][0]):
                file = self._waiting.pop()
                self._advance(opened, self._read(file), file.path)
            if opened:
                _, path, one, following = heapq.heappop(opened)
                yield one
                self._advance(opened, following, path)

    @staticmethod
    def _advance(
        opened: list[tuple[int, str, FileRecord, Iterator[FileRecord]]],
        following: Iterator[FileRecord],
        path: str,
    ) -> None:
        if (one := next(following, None)) is not None:
            heapq.heappush(opened, (one.offset, path, one, following))

    def _read(self, file: DataFile) -> Iterator[FileRecord]:
        """Yields the records of a file, up to where it is damaged."""
        count, last = 0, file.first - 1
        try:
            path = check_file(self._folder, file)
            self.bytes += 2 * file.size
            for one in _READERS[self._form](file, path, self._decoded):
                if one.offset <= last and count:
                    raise DamagedFile(f"{path} holds the offset {one.offset} behind {last}")
                if not file.first <= one.offset < file.end:
                    raise DamagedFile(f"{path} holds the offset {one.offset}: {_offsets(file)} are expected")
                count, last = count + 1, one.offset
                yield one
            if count != file.records:
                raise DamagedFile(f"{path} holds {count:,} records in place of {file.records:,}")
        except (DamagedFile, BatchFailure, msgspec.DecodeError, UnicodeDecodeError) as damaged:
            self.damage.append(FileDamage(file, self._reason(damaged, file)))

    def _reason(self, damaged: Exception, file: DataFile) -> str:
        """Returns what is wrong with a file, without its path."""
        if isinstance(damaged, DamagedFile):
            return str(damaged).removeprefix(f"{self._folder.store.path(file.path)} ")
        return f"can't be read: {damaged}"


def _offsets(file: DataFile) -> str:
    return f"the offsets {file.first} to {file.end - 1}"


def _raw(file: DataFile, path: StoredFile, _decoded: bool) -> Iterator[FileRecord]:
    where = PartitionLocation(file.topic, file.partition)
    for sets in windows(path, where):
        for member in sets:
            kind = int(isinstance(member, Batch) and member.log_append_time)
            for one in records(member, where):
                if one.offset >= file.first:  # a batch before it may be whole
                    yield FileRecord(one.offset, kind, content_in_files(one, one.value), file.path)


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


def _json(file: DataFile, path: StoredFile, decoded: bool) -> Iterator[FileRecord]:
    for text in _lines(path):
        line = _line.decode(text)
        _check_place(file, path, line.topic, line.partition, line.offset)
        headers = tuple((one.key, _bytes(one.value, one.value_base64)) for one in line.headers)
        key = _bytes(line.key, line.key_base64)
        value = (
            line.value_base64 if line.value_base64 is not None else _json_value(bytes(line.value), decoded)
        )
        record = Record(line.offset, line.timestamp, key, None, headers)
        yield FileRecord(line.offset, line.timestamp_type, content_in_files(record, value), file.path)


def _json_value(text: bytes, decoded: bool) -> bytes | None:
    if text == b"null":
        return None
    return text if decoded or not text.startswith(b'"') else _text.decode(text).encode()


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


def _parquet(file: DataFile, path: StoredFile, _decoded: bool) -> Iterator[FileRecord]:
    import pyarrow as pa  # only this format loads it
    import pyarrow.parquet as pq

    try:
        with path.open() as opened, pq.ParquetFile(opened, pre_buffer=False) as rows:
            for batch in rows.iter_batches(_ROWS, use_threads=False):
                yield from _rows_of(batch, file, path)
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise DamagedFile(f"{path} can't be read as Parquet: {' '.join(str(error).split())}") from error


def _rows_of(batch: Any, file: DataFile, path: StoredFile) -> Iterator[FileRecord]:
    import pyarrow as pa

    columns: Mapping[str, Sequence[Any]] = {
        name: (batch.column(name).cast(pa.int64()) if name == "timestamp" else batch.column(name)).to_pylist()
        for name in batch.schema.names
    }
    for at in range(batch.num_rows):
        offset = columns["offset"][at]
        _check_place(file, path, columns["topic"][at], columns["partition"][at], offset)
        headers = tuple((one["key"], one["value"]) for one in columns["headers"][at])
        time = columns["timestamp"][at]
        record = Record(offset, time if time is not None else -1, columns["key"][at], None, headers)
        content = content_in_files(record, decoded_value(columns["value"][at]))
        yield FileRecord(offset, columns["timestamp_type"][at], content, file.path)


def _check_place(file: DataFile, path: StoredFile, topic: str, partition: int, offset: int) -> None:
    if (topic, partition) != (file.topic, file.partition):
        raise DamagedFile(
            f"{path} holds the offset {offset} of {topic}-{partition}, which is not of"
            f" {file.topic}-{file.partition}"
        )


_Reader = Callable[[DataFile, StoredFile, bool], Iterator[FileRecord]]
_READERS: Final[Mapping[Format, _Reader]] = {"raw": _raw, "json": _json, "parquet": _parquet}
