"""Finds the ids of schemas in the keys, values and headers of a batch, and writes others in their place.

A key or value that is shorter than the prefix of Confluent's wire format, or begins otherwise, has no id.
Where a header of the record names the schema, the payload may begin with a zero byte of its own.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from operator import itemgetter
from typing import Final, NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt

from runtime.batch.arrays import Integers, IrregularError, blocks, boundaries, read_varints, skip_varints
from runtime.batch.codecs import UnpackedSizeExceeded, pack
from runtime.batch.failure import BatchFailure, CorruptBatch
from runtime.batch.layout import HEADER_SIZE, LOG_OVERHEAD, Batch
from runtime.batch.rewrite import fitting, unpacked_body, unpacks_too_large
from runtime.batch.spec import OutgoingBatch, RewriteReason, RewriteSpec
from runtime.batch.splice import Raw, header_places, scan, sized
from runtime.batch.varint import MalformedBytes
from runtime.contract.records.schema_names import (
    MAX_ID,
    NAMING_HEADERS,
    WIRE_PREFIX,
    SchemaName,
    naming_headers,
    schema_name,
)
from runtime.contract.spec.schemas import PARTS, RecordPart

_HEADERS: Final = tuple(name.encode() for name in NAMING_HEADERS)
_SIZE_BYTES: Final = 4  # of the length of a key or value, behind its first one
_ID_BYTES: Final = WIRE_PREFIX - 1
_NULL: Final = 1  # the length of a null value


class SchemaMissing(BatchFailure):
    """The schema of a record is not at the destination yet: the record waits for it."""


class SchemaIds(NamedTuple):
    """The ids in the records of a batch: first those of keys, then those of values.

    `data` are the unpacked records. For each id, `places` is where its four bytes are, and `records` which
    record has it. `keys` is how many of them are in keys.
    """

    data: bytes | bytearray
    places: Integers
    ids: Integers
    records: Integers
    keys: int
    guids: tuple[tuple[int, UUID], ...] = ()

    def without(self, numbers: Set[int], before: int) -> SchemaIds:
        """Returns the ids that are none of these numbers, in the records before this one."""
        return self._only(~(np.isin(self.ids, list(numbers)) & (self.records < before)))

    def without_part(self, part: RecordPart, before: int | None = None) -> SchemaIds:
        """Returns the ids without those of the keys or of the values, in the records before this one."""
        keys = np.arange(len(self.ids)) < self.keys
        left_out = keys if part == "key" else ~keys
        return self._only(~(left_out if before is None else left_out & (self.records < before)))

    @property
    def parts(self) -> list[RecordPart]:
        """Returns which of keys and values have ids."""
        counts = self.keys, len(self.ids) - self.keys
        return [part for part, count in zip(PARTS, counts, strict=True) if count]

    def first_record_of(self, part: RecordPart) -> int:
        """Returns the first record with an id in its key or in its value; one has such an id."""
        return int(self.records[0 if part == "key" else self.keys])

    def before(self, record: int) -> SchemaIds:
        """Returns the ids of the records before this one."""
        guids = tuple(guid for guid in self.guids if guid[0] < record)
        return self._only(self.records < record)._replace(guids=guids)

    def _only(self, which: npt.NDArray[np.bool_]) -> SchemaIds:
        keys = int(np.count_nonzero(which[: self.keys]))
        return self._replace(
            places=self.places[which], ids=self.ids[which], records=self.records[which], keys=keys
        )

    def unknown(self, known_names: Container[SchemaName]) -> dict[SchemaName, int]:
        """Returns each id and GUID that is not among `known_names`, with the first record that has it.

        They are in the order of these records."""
        if all(name in known_names for name in self._numbers()) and all(
            guid in known_names for _, guid in self.guids
        ):
            return {}
        pairs = [*zip(self.records.tolist(), self.ids.tolist(), strict=True), *self.guids]
        first: dict[SchemaName, int] = {}
        for record, name in sorted(pairs, key=itemgetter(0)):
            if name not in known_names:
                first.setdefault(name, record)
        return first

    def translated(
        self, translation: Mapping[SchemaName, SchemaName] | Mapping[int, int]
    ) -> bytearray | None:
        """Returns the records with their ids translated, or None where all stay the same."""
        old = self._numbers()
        new = [translation[number] for number in old]
        if old == new:
            return None
        data = bytearray(self.data)
        digits = np.array(new, ">u4")[np.searchsorted(old, self.ids)]
        blocks(np.frombuffer(data, np.uint8), _ID_BYTES)[self.places] = digits.view(f"V{_ID_BYTES}")
        return data

    def _numbers(self) -> list[int]:
        """Returns each id once, in their order. Most batches have a single one, which needs no sort."""
        others = self.ids[self.ids != self.ids[:1]]
        numbers: list[int] = np.unique(self.ids).tolist() if len(others) else self.ids[:1].tolist()
        return numbers


def schema_ids(batch: Batch, spec: RewriteSpec) -> SchemaIds:
    """Finds the ids in the records of a whole batch. Raises a BatchFailure for records it can't read."""
    try:
        data = bytes(unpacked_body(batch, spec.max_unpacked))
        return _found(data, batch.records)
    except UnpackedSizeExceeded:
        raise unpacks_too_large(batch, spec.where, spec.max_unpacked) from None
    except (MalformedBytes, IrregularError, IndexError) as error:
        raise CorruptBatch(spec.where, batch.base_offset, f"unreadable records: {error}") from None


def _found(data: bytes, count: int) -> SchemaIds:
    octets = np.frombuffer(data, np.uint8)
    starts, stops = boundaries(data, count)
    if len(starts) and stops[-1] > len(data):
        raise MalformedBytes("a record's length does not fit")
    at = skip_varints(octets, skip_varints(octets, starts + 1))
    prefixed: list[tuple[Integers, Integers]] = []  # where the ids are, and which records have them
    for _ in PARTS:
        size, begin = read_varints(octets, at, _SIZE_BYTES)
        at = begin + np.maximum(size, 0)
        if (size < -1).any() or (at >= stops).any():
            raise MalformedBytes("a key or value does not fit its record")
        long = np.flatnonzero(size >= WIRE_PREFIX)
        payloads = begin[long]
        which = long[(octets[payloads] == 0) & (octets[payloads + 1] <= MAX_ID >> 24)]
        prefixed.append((begin[which] + 1, which))
    guids: list[tuple[int, UUID]] = []
    with_headers = np.flatnonzero(octets[at])
    if len(with_headers) and any(name in data for name in _HEADERS):
        named, guids = _in_headers(data, with_headers.tolist(), at.tolist(), stops.tolist())
        prefixed = [
            _with_named(prefixed_part, named[part])
            for prefixed_part, part in zip(prefixed, PARTS, strict=True)
        ]
    (key_places, key_records), (value_places, value_records) = prefixed
    where = np.concatenate((key_places, value_places))
    records = np.concatenate((key_records, value_records))
    ids = blocks(octets, _ID_BYTES)[where].view(">u4").astype(np.int64) if len(where) else where
    return SchemaIds(data, where, ids, records, len(key_places), tuple(guids))


class _InHeaders(NamedTuple):
    """The records whose headers name the schema of one part, and the places of the ids in these headers."""

    records: list[int]
    ids: list[tuple[int, int]]  # place and record


def _in_headers(
    data: bytes, records: Iterable[int], begins: Sequence[int], ends: Sequence[int]
) -> tuple[dict[RecordPart, _InHeaders], list[tuple[int, UUID]]]:
    """Returns which keys and values have their schema in a header and where its id is, and all GUIDs.

    A header in an unknown format has neither; the payload of its record has no id even so.
    """
    named = {part: _InHeaders([], []) for part in PARTS}
    guids = []
    for record in records:
        headers = list(header_places(data[begins[record] : ends[record]], 0))
        naming = naming_headers((name.decode("latin-1"), content) for name, content, _ in headers)
        for part, (at, content) in naming.items():
            named[part].records.append(record)
            schema = schema_name(content)
            if isinstance(schema, int):
                named[part].ids.append((begins[record] + headers[at][2] - len(content) + 1, record))
            elif schema is not None:
                guids.append((record, schema))
    return named, guids


def _with_named(prefixed: tuple[Integers, Integers], named: _InHeaders) -> tuple[Integers, Integers]:
    """Returns the ids of one part in the order of their records: a payload holds none where a header does."""
    places, records = prefixed
    without_header = ~np.isin(records, named.records)
    more = np.array(named.ids, np.int64).reshape(-1, 2)
    records = np.concatenate((records[without_header], more[:, 1]))
    order = np.argsort(records, kind="stable")
    return np.concatenate((places[without_header], more[:, 0]))[order], records[order]


def with_records(
    out: OutgoingBatch, data: bytes | bytearray, spec: RewriteSpec, up_to: int | None = None
) -> Iterator[OutgoingBatch]:
    """Yields the batch with these records in place of its own, which have the same lengths.

    `up_to` ends it before a record. Packed records may become larger than the destination takes: then it
    becomes several batches, with the same offsets. Raises a BatchFailure for a record that alone is too
    large, behind those before it.
    """
    batch = out.batch
    if up_to is None:
        body = pack(batch.codec, data)
        if HEADER_SIZE + len(body) <= spec.max_batch:
            length = HEADER_SIZE - LOG_OVERHEAD + len(body)
            new = batch._replace(length=length, crc=0, body=body)
            yield out._replace(batch=new, reason=out.reason | RewriteReason.SCHEMA)
            return
    raw: list[Raw] = []
    try:
        scan(bytes(data), batch.records, 0, batch.base_timestamp, raw)
    except (MalformedBytes, IndexError) as error:
        raise CorruptBatch(spec.where, source_offset(out, 0), f"unreadable records: {error}") from None
    offsets = chain.from_iterable(range(run.source, run.source + run.records) for run in out.runs)
    kept = [(offset, stamp, tail) for offset, (_, stamp, tail) in zip(offsets, raw, strict=True)]
    position = out.position if up_to is None else kept[up_to][0]
    if kept := kept[:up_to]:
        nulls = sum(tail[sized(tail, 0)[1]] == _NULL for _, _, tail in kept) if out.tombstones else 0
        tombstones = min(out.tombstones, nulls)  # those behind the cut are counted with their own batch
        for part in fitting(kept, batch.codec, position, spec, out.reason | RewriteReason.SCHEMA):
            yield part._replace(tombstones=tombstones, epoch=out.epoch)
            tombstones = 0


def source_offset(out: OutgoingBatch, record: int) -> int:
    """Returns the source's offset of a record of a batch."""
    run = next(run for run in reversed(out.runs) if run.delta <= record)
    return run.source + record - run.delta


def records_before(out: OutgoingBatch, offset: int) -> int:
    """Returns how many records of a batch lie before an offset of the source."""
    return sum(min(max(offset - run.source, 0), run.records) for run in out.runs)
