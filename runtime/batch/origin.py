"""This module applies headers provenance: it adds a header to records, and drops records by origin (R5)."""

from typing import Final

from runtime.batch.spec import RewriteSpec
from runtime.batch.splice import Raw, header_count_at, headers_of, with_header
from runtime.batch.varint import varint
from runtime.contract.records.provenance import HEADER, OFFSET_SIZE, constant_part, decode, offset_part

_NAME: Final = HEADER.encode()
_NAMED: Final = varint(len(_NAME)) + _NAME


class OriginRule:
    """An OriginRule holds the spec's provenance, prepared once for all records of a fetch."""

    __slots__ = ("_home", "_native_only", "active", "dropped", "header")

    def __init__(self, spec: RewriteSpec, now_ms: int) -> None:
        self.header = b""  # all of the added header, except for the offset at its end
        if spec.provenance is not None:
            value = constant_part(spec.provenance, now_ms)
            self.header = _NAMED + varint(len(value) + OFFSET_SIZE) + value
        self._home = spec.home
        self._native_only = spec.native_only
        self.active = bool(self.header or self._home or self._native_only)
        self.dropped = 0

    def drops(self, tail: bytes, at: int) -> bool:
        """Returns whether the record, whose headers begin at `at`, must be dropped because of its origin."""
        if tail.find(_NAMED, at) < 0 or not (self._home or self._native_only):
            return False
        for name, value in headers_of(tail, at):
            origin = decode(value) if name == _NAME else None
            if origin is not None and (self._native_only or origin.home == self._home):
                return True
        return False

    def apply(self, records: list[Raw]) -> list[Raw]:
        kept: list[Raw] = []
        for offset, timestamp, tail in records:
            if self.drops(tail, header_count_at(tail)):
                self.dropped += 1
            elif self.header:
                kept.append((offset, timestamp, with_header(tail, self.header + offset_part(offset))))
            else:
                kept.append((offset, timestamp, tail))
        return kept
