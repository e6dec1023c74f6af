"""Writes the records of one partition to staged files, in the format of the endpoint.

A file is complete, synced and closed before anything names it. Columns of JSON lines and Parquet: key, value,
headers, topic, partition, offset, timestamp, timestamp_type (0: set by the producer, 1: by the broker).
The value is the bytes of the record or, for a flow with a transform, what Spark has decoded of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from crc32c import crc32c

from runtime.batch import Batch, Record, RecordSet, records
from runtime.batch.layout import NO_TIMESTAMP
from runtime.contract.records.manifest import DataFile
from runtime.contract.spec.files import FilesSpec, by_time, file_name, folder_of
from runtime.contract.spec.naming import TopicPartition
from runtime.files.manifest import ManifestFolder

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ROW_GROUP_BYTES: Final = 16 << 20  # of keys, values and headers: bounds the memory of an open file (R8)
_MOST_OPEN: Final = 4  # folders of one partition that are written at a time
PARTITION_FILES: Final = 4_096  # of a partition in a round: a commit names all of them
ROWS_AT_ONCE: Final = 4_096  # each may need a file of its own: between them a round may end
_HOUR_MS: Final = 3_600_000

Row = tuple[Record, int]  # a record, and the type of its timestamp


def rows_of(member: RecordSet, where: TopicPartition, begin: int, unpacked_bytes: int) -> list[Row]:
    """Returns the records of a batch from the offset `begin` on. Raises BatchFailure."""
    kind = int(isinstance(member, Batch) and member.log_append_time)
    return [(record, kind) for record in records(member, where, unpacked_bytes) if record.offset >= begin]


def size_of(record: Record, *, with_value: bool = True) -> int:
    """Returns the bytes of a record's key, headers and value."""
    size = len(record.key or b"") + (len(record.value or b"") if with_value else 0)
    return size + sum(len(name) + len(content or b"") for name, content in record.headers)


class StagedFile:
    """A file that is being written: its size, its checksum and its records are known at any time."""

    def __init__(self, folder: ManifestFolder, generation: int) -> None:
        name = f"{folder.staging(generation)}/{uuid.uuid4().hex}.part"
        self._name = name.removeprefix(f"{folder.own}/")  # as a commit names it
        self._file = folder.store.upload(name)
        self.size = 0
        self.first = -1
        self._crc32c = 0
        self._end = -1
        self._records = 0
        self._timestamps: tuple[int, int] | None = None

    def write(self, text: bytes | memoryview) -> int:
        self._file.write(text)
        self.size += len(text)
        self._crc32c = crc32c(text, self._crc32c)
        return len(text)

    def count(self, first: int, end: int, records: int, oldest: int, newest: int) -> None:
        """Counts records of the offsets `first … end-1`, with their oldest and newest timestamps."""
        if self._timestamps is None:
            self.first, self._timestamps = first, (oldest, -1)
        self._end = end
        self._records += records
        self._timestamps = min(self._timestamps[0], oldest), max(self._timestamps[1], newest)

    def close(self) -> None:
        """Completes the file, and makes it durable."""
        self._file.close()

    def discard(self) -> None:
        """Gives the file up: no commit names it."""
        self._file.discard()

    def described(self, path: str, topic: str, topic_id: str, partition: int) -> DataFile:
        """Returns what a commit says of the file. `path` is the place to which the commit moves it."""
        oldest, newest = self._timestamps or (-1, -1)
        return DataFile(
            path=path,
            staged=self._name,
            topic=topic,
            topic_id=topic_id,
            partition=partition,
            first=self.first,
            end=self._end,
            records=self._records,
            size=self.size,
            crc32c=self._crc32c,
            first_timestamp=oldest,
            last_timestamp=newest,
        )


class FormatWriter(Protocol):
    """Writes records in one format to one staged file.

    `values` are the decoded values of the rows: JSON as text, or the structs of Parquet. A file has them for
    all of its rows or for none.
    """

    def write(self, rows: Sequence[Row], values: pa.Array | None) -> None: ...

    def finish(self) -> None: ...


class JsonLinesFile:
    """Writes one JSON object for each record.

    Bytes that are UTF-8 are text. Others are Base64 in a field of their own: `value_base64`.
    """

    def __init__(self, file: StagedFile, where: TopicPartition) -> None:
        self._file = file
        self._where = where
        self._encoder = msgspec.json.Encoder()

    def write(self, rows: Sequence[Row], values: pa.Array | None) -> None:
        topic, partition = self._where.topic, self._where.partition
        lines = []
        decoded = values.to_pylist() if values is not None else None
        for at, (record, timestamp_type) in enumerate(rows):
            line: dict[str, Any] = {}
            _put(line, "key", record.key)
            if decoded is None:
                _put(line, "value", record.value)
            else:
                text = decoded[at]
                line["value"] = msgspec.Raw(text.encode()) if text is not None else None
            line["headers"] = [_header(name, content) for name, content in record.headers]
            line["topic"] = topic
            line["partition"] = partition
            line["offset"] = record.offset
            line["timestamp"] = record.timestamp
            line["timestamp_type"] = timestamp_type
            lines.append(line)
        self._file.write(self._encoder.encode_lines(lines))

    def finish(self) -> None:
        return


def _header(name: str, content: bytes | None) -> dict[str, Any]:
    header: dict[str, Any] = {"key": name}
    _put(header, "value", content)
    return header


def _put(line: dict[str, Any], name: str, value: bytes | None) -> None:
    if value is None:
        line[name] = None
        return
    try:
        line[name] = value.decode()
    except UnicodeDecodeError:
        line[f"{name}_base64"] = value


class ParquetRows:
    """Writes Parquet with pyarrow, a row group at a time, with the columns of Spark's Kafka source."""

    def __init__(self, file: StagedFile, where: TopicPartition) -> None:
        import pyarrow as pa  # only this format loads it

        self._pa = pa
        self._where = where
        self._file = file
        self._opened: tuple[pa.Schema, pq.ParquetWriter] | None = None
        self._rows: list[Row] = []
        self._values: list[pa.Array] = []
        self._bytes = 0

    def write(self, rows: Sequence[Row], values: pa.Array | None) -> None:
        if self._opened is None:
            schema = self._schema(values.type if values is not None else self._pa.binary())
            self._opened = schema, parquet_writer(self._file, schema)
        self._rows += rows
        self._bytes += sum(size_of(record, with_value=values is None) + 64 for record, _ in rows)
        if values is not None:
            self._values.append(values)
            self._bytes += values.nbytes
        if self._bytes >= ROW_GROUP_BYTES:
            self._flush(*self._opened)

    def finish(self) -> None:
        assert self._opened is not None, "a file is made for its first records"
        if self._rows:
            self._flush(*self._opened)
        self._opened[1].close()

    def _schema(self, value: pa.DataType) -> pa.Schema:
        pa = self._pa
        header = pa.struct([("key", pa.string()), ("value", pa.binary())])
        return pa.schema(
            [
                ("key", pa.binary()),
                ("value", value),
                ("headers", pa.list_(header)),
                pa.field("topic", pa.string(), nullable=False),
                pa.field("partition", pa.int32(), nullable=False),
                pa.field("offset", pa.int64(), nullable=False),
                pa.field("timestamp", pa.timestamp("ms", "UTC")),
                pa.field("timestamp_type", pa.int32(), nullable=False),
            ]
        )

    def _flush(self, schema: pa.Schema, writer: pq.ParquetWriter) -> None:
        pa, rows = self._pa, self._rows
        count = len(rows)
        if self._values:
            values = pa.concat_arrays(self._values)
        else:
            values = pa.array([record.value for record, _ in rows], pa.binary())
        columns = [
            pa.array([record.key for record, _ in rows], pa.binary()),
            values,
            pa.array(
                [[{"key": key, "value": value} for key, value in record.headers] for record, _ in rows],
                schema.field("headers").type,
            ),
            pa.array([self._where.topic] * count, pa.string()),
            pa.array([self._where.partition] * count, pa.int32()),
            pa.array([record.offset for record, _ in rows], pa.int64()),
            pa.array(
                [None if record.timestamp == NO_TIMESTAMP else record.timestamp for record, _ in rows],
                pa.int64(),
            ).cast(pa.timestamp("ms", "UTC")),
            pa.array([kind for _, kind in rows], pa.int32()),
        ]
        writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=count)
        self._rows, self._values, self._bytes = [], [], 0


def parquet_writer(file: StagedFile, schema: pa.Schema) -> pq.ParquetWriter:
    """Returns a writer of Parquet into a staged file, compressed with zstd."""
    import pyarrow.parquet as pq

    return pq.ParquetWriter(
        _Sink(file), schema, compression="zstd", compression_level=1, use_dictionary=["topic"]
    )


class _Sink:
    """The file object that pyarrow writes to: it counts and sums what goes to the staged file."""

    closed = False

    def __init__(self, file: StagedFile) -> None:
        self._file = file

    def write(self, text: Any) -> int:
        return self._file.write(memoryview(text).cast("B") if not isinstance(text, bytes) else text)

    def tell(self) -> int:
        return self._file.size

    def flush(self) -> None:
        return

    def close(self) -> None:
        self.closed = True


class PartitionFiles:
    """Writes the batches of one partition, in order, to as many files as its layout and size ask for.

    `unpacked_bytes` bounds the records of a batch (R8).
    """

    def __init__(
        self,
        flow: str,
        spec: FilesSpec,
        where: TopicPartition,
        topic_id: str,
        folder: ManifestFolder,
        generation: int,
        unpacked_bytes: int,
    ) -> None:
        self._flow = flow
        self._spec = spec
        self.unpacked_bytes = unpacked_bytes
        self._where = where
        self._topic_id = topic_id
        self._folder = folder
        self._generation = generation
        self._open: dict[str, tuple[StagedFile, FormatWriter | None]] = {}
        self._by_time = by_time(spec.layout)
        self.done: list[DataFile] = []

    def write(self, member: RecordSet, text: memoryview, begin: int) -> tuple[int, int]:
        """Writes a batch, of which `text` are the bytes, and returns how many records, and the offset behind.

        Records before the offset `begin` are left out, except in raw files, which hold whole batches. The
        timestamps of a batch are its producer's, so that it may fill the round: then the rest of it is left.
        Raises BatchFailure, before it has written anything of the batch, and OSError.
        """
        if self._spec.format == "raw":
            return self._write_raw(member, text, begin), member.next_offset
        rows = rows_of(member, self._where, begin, self.unpacked_bytes)
        for at in range(0, len(rows), ROWS_AT_ONCE):
            if at and self.full:
                return at, rows[at][0].offset
            self.write_rows(rows[at : at + ROWS_AT_ONCE])
        return len(rows), member.next_offset

    def write_rows(self, rows: Sequence[Row], values: pa.Array | None = None) -> None:
        """Writes records that a transform lets through, with their decoded values. Raises OSError."""
        if not self._by_time:
            self._write_rows(rows, values, 0)
            return
        at = 0
        for hour, group in groupby(rows, lambda row: row[0].timestamp // _HOUR_MS):
            run = list(group)
            run_values = values
            if values is not None and len(run) < len(rows):  # a copy: a slice would hold all of the values
                run_values = values.take(list(range(at, at + len(run))))
            self._write_rows(run, run_values, hour * _HOUR_MS)
            at += len(run)

    def _write_rows(self, rows: Sequence[Row], values: pa.Array | None, timestamp: int) -> None:
        if not rows:
            return
        folder, file, writer = self._file(timestamp)
        assert writer is not None
        writer.write(rows, values)
        times = [record.timestamp for record, _ in rows]
        file.count(rows[0][0].offset, rows[-1][0].offset + 1, len(rows), min(times), max(times))
        self._roll(folder)

    def _write_raw(self, member: RecordSet, text: memoryview, begin: int) -> int:
        first = member.base_offset
        if isinstance(member, Batch) and first >= begin:  # its header is enough: nothing is unpacked
            oldest, newest = member.first_timestamp, member.max_timestamp
            times = (newest if oldest is None else oldest), newest
            count = member.records
        else:
            kept = [
                record
                for record in records(member, self._where, self.unpacked_bytes)
                if record.offset >= begin
            ]
            count = len(kept)
            if kept:
                first = kept[0].offset
                stamps = [record.timestamp for record in kept]
                times = min(stamps), max(stamps)
        if count:
            folder, file, _ = self._file(0)
            file.write(text)
            file.count(first, member.next_offset, count, *times)
            self._roll(folder)
        return count

    def _file(self, timestamp: int) -> tuple[str, StagedFile, FormatWriter | None]:
        """Returns the folder in which a record with this timestamp lies, and the open file there."""
        folder = folder_of(self._spec.layout, self._where.topic, self._where.partition, timestamp)
        opened = self._open.pop(folder, None)
        if opened is None:
            while len(self._open) >= _MOST_OPEN:  # the folder that was not written for the longest time
                self._close(next(iter(self._open)))
            file = StagedFile(self._folder, self._generation)
            writer: FormatWriter | None = None
            match self._spec.format:
                case "json":
                    writer = JsonLinesFile(file, self._where)
                case "parquet":
                    writer = ParquetRows(file, self._where)
            opened = file, writer
        self._open[folder] = opened
        return folder, *opened

    def _roll(self, folder: str) -> None:
        if self._open[folder][0].size >= self._spec.size_bytes:
            self._close(folder)

    def _close(self, folder: str) -> None:
        file, writer = self._open[folder]
        if writer is not None:
            writer.finish()
        file.close()
        del self._open[folder]
        (topic, partition), topic_id = self._where, self._topic_id
        name = file_name(self._flow, topic_id, partition, file.first, self._spec.format)
        self.done.append(file.described(f"{folder}/{name}", topic, topic_id, partition))

    @property
    def full(self) -> bool:
        """Whether the partition's round ends here, because a commit can't name any number of files."""
        return len(self.done) >= PARTITION_FILES

    def finish(self) -> list[DataFile]:
        """Closes all files, and returns them. Raises OSError."""
        for folder in list(self._open):
            self._close(folder)
        return self.done

    def discard(self) -> None:
        """Removes the files that are open: they are not part of the result."""
        for file, _ in self._open.values():
            file.discard()
        self._open.clear()
