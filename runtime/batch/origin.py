"""This module decides by the provenance of records which of them are copied, and what is added to them."""

from typing import Final

from runtime.batch.spec import DroppedRecords, RewriteSpec
from runtime.batch.splice import Raw, header_count_at, headers_of, with_header
from runtime.batch.varint import varint
from runtime.contract.records.provenance import (
    HEADER,
    OFFSET_SIZE,
    constant_part,
    decode,
    names,
    offset_part,
)

NAME: Final = HEADER.encode()
NAMED: Final = varint(len(NAME)) + NAME


class OriginRule:
    """Holds the spec's provenance, prepared once for all records of a fetch.

    `header` is added to each record. Records that originated at `home` are dropped; with `native_only` all
    that were copied before.
    """

    __slots__ = ("_home", "active", "dropped", "header", "home", "native_only")

    def __init__(self, spec: RewriteSpec, now_ms: int) -> None:
        self.header = b""  # all of the added header, except for the offset at its end
        if spec.provenance is not None:
            value = constant_part(spec.provenance, now_ms)
            self.header = NAMED + varint(len(value) + OFFSET_SIZE) + value
        self._home = spec.home
        self.home = names(*spec.home) if spec.home else None  # as it is in a header
        self.native_only = spec.native_only
        self.active = bool(self.header or self.home or self.native_only)
        self.dropped: list[DroppedRecords] = []

    def drop(self, end: int, records: int) -> None:
        """Records that so many records before the source offset `end` are not copied."""
        self.dropped.append(DroppedRecords(end, records))

    def dropped_before(self, position: int) -> list[DroppedRecords]:
        """Returns the dropped records before a position, in the order of their offsets."""
        return sorted(records for records in self.dropped if records.end <= position)

    def drops(self, tail: bytes, at: int) -> bool:
        """Returns whether the record, whose headers begin at `at`, must be dropped because of its origin."""
        if tail.find(NAMED, at) < 0 or not (self.home or self.native_only):
            return False
        for name, value in headers_of(tail, at):
            origin = decode(value) if name == NAME else None
            if origin is not None and (self.native_only or origin.home == self._home):
                return True
        return False

    def apply(self, records: list[Raw]) -> list[Raw]:
        kept: list[Raw] = []
        for offset, timestamp, tail in records:
            if self.drops(tail, header_count_at(tail)):
                self.drop(offset + 1, 1)
            elif self.header:
                kept.append((offset, timestamp, with_header(tail, self.header + offset_part(offset))))
            else:
                kept.append((offset, timestamp, tail))
        return kept
