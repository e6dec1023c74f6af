"""Reads the records of files as a flow's task does, for tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runtime.batch import Codec, Record, records
from runtime.batch.rewrite import batch_of
from runtime.batch.splice import join
from runtime.contract.spec.naming import TopicPartition
from runtime.files.source.folder import open_file
from runtime.files.source.lines import FileReader, ReadRecords
from runtime.files.source.parquet_rows import RowReader

LONGEST = 1 << 20


@contextmanager
def reader_of(path: Path) -> Iterator[RowReader]:
    """Opens a file with a reader of its rows."""
    with open_file(path.parent, path.name) as file:
        yield RowReader(file)


def read_all(reader: FileReader, position: int = 0, longest: int = LONGEST) -> ReadRecords:
    """Everything from a row on, as if it had been found at once."""
    found: list[tuple[int, bytes]] = []
    while (part := reader.read(position, longest)).position > position:
        found += part.records
        position = part.position
        if part.problem is not None:
            break
    return part._replace(records=found)


def unpacked(found: ReadRecords) -> list[Record]:
    """The records as a consumer sees them."""
    if not found.records:
        return []
    raw = [(number, *one) for number, one in enumerate(found.records)]
    data, base, latest = join(raw)
    batch = batch_of(0, len(raw), Codec.NONE, memoryview(data), base, latest)
    return records(batch, TopicPartition("topic", 0))


def values_of(path: Path, position: int = 0) -> list[bytes | None]:
    """The values of all records of a file."""
    with reader_of(path) as reader:
        return [one.value for one in unpacked(read_all(reader, position))]
