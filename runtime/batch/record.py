"""This module reads whole records one by one, for verify, salvage, read and tests.

The copy loop never uses it.
"""

from typing import NamedTuple

from runtime.batch.codecs import UnpackedSizeExceeded
from runtime.batch.failure import CorruptBatch, PartitionLocation
from runtime.batch.layout import RecordSet
from runtime.batch.rewrite import records_of, unpacks_too_large
from runtime.batch.spec import MAX_UNPACKED
from runtime.batch.splice import headers_of, sized
from runtime.batch.varint import MalformedBytes


class Record(NamedTuple):
    offset: int
    timestamp: int  # as the cluster's readers see it; -1: none
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def records(member: RecordSet, where: PartitionLocation, max_unpacked: int = MAX_UNPACKED) -> list[Record]:
    """Returns all records of a set, also of a control batch.

    AbortedTransactions decides which of them a reader may see.
    """
    try:
        return [
            Record(offset, timestamp, *_fields(tail))
            for offset, timestamp, tail in records_of(member, max_unpacked)
        ]
    except UnpackedSizeExceeded:
        raise unpacks_too_large(member, where, max_unpacked) from None
    except (MalformedBytes, IndexError, UnicodeDecodeError) as error:
        raise CorruptBatch(where, member.base_offset, f"unreadable records: {error}") from None


def _fields(tail: bytes) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
    key, position = sized(tail, 0)
    value, position = sized(tail, position)
    return key, value, tuple((name.decode(), content) for name, content in headers_of(tail, position))
