"""The schema gate lets a record pass once its schema is in the schema registry of the destination.

It stands behind the filter and the transform. A record whose schema can't be registered waits, and so does
everything behind it in its partition (R4); other partitions go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from runtime.batch import BatchFailure, OutgoingBatch, RewriteSpec
from runtime.batch.schema_ids import SchemaIds, SchemaMissing, schema_ids, source_offset, with_records
from runtime.contract.records.control import AssignedPartition
from runtime.contract.records.job_status import SchemaStats
from runtime.contract.spec.jobspec import FlowSpec
from runtime.schemas.client import RegistryUnavailable, SchemaRegistry
from runtime.schemas.copier import SchemaCopier, SchemaNotCopied
from runtime.slot.context import Spawn
from runtime.slot.partition import Cursor
from runtime.slot.read.batch_filter import FilteredBatches

# A response waits this long for schemas that are not known yet; then its partitions wait, and others go on.
_PATIENCE_S = 1.0
_MOST_AT_ONCE = 100  # schemas that one response may ask for
_MOST_REASONS = 100
_UNDER_WAY = "the schema registries have not answered yet"


class SchemaGate:
    """The gate of a flow knows the ids of the destination for those of the source, by topic.

    A registry has one id for a schema of a subject, so a slot that begins again finds the same ids there.
    """

    def __init__(
        self, spec: FlowSpec, source: SchemaRegistry, destination: SchemaRegistry, spawn: Spawn
    ) -> None:
        self._spawn = spawn
        self._copier = SchemaCopier(source, destination, spec.schemas)
        self._known: dict[str, dict[int, int]] = {}
        self._with_schemas: set[tuple[str, str]] = set()
        self._under_way: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._reasons: dict[tuple[str, int], str] = {}

    def stats(self) -> SchemaStats:
        """Returns how many schemas are known, how many are waited for, and why the first of them is."""
        known = {number for numbers in self._known.values() for number in numbers}
        waiting = {number for _, number in self._reasons.keys() | self._under_way.keys()}
        why = next((_named(number, why) for (_, number), why in self._reasons.items()), "")
        return SchemaStats(len(known), len(waiting), why)

    async def admit(
        self, assigned: AssignedPartition, filtered: FilteredBatches, spec: RewriteSpec
    ) -> FilteredBatches:
        """Returns the batches with the destination's ids, up to the first record that must wait."""
        known = self._known.setdefault(assigned.topic, {})
        found, failure = _read(filtered.outgoing, spec)
        passed: list[tuple[OutgoingBatch, int]] = []
        try:
            found = await self._of_schemas(assigned.topic, found)
        except RegistryUnavailable as error:
            first = source_offset(filtered.outgoing[0][0], 0)
            return _stopped(filtered, passed, 0, SchemaMissing(spec.where, first, str(error)))
        other = await self._resolve(assigned, found)
        for at, ids in enumerate(found):
            out, epoch = filtered.outgoing[at]
            own = ids.without(other)
            if (missing := own.first_record_without(known)) is not None:
                record, number = missing
                why = _named(number, self._reasons.get((assigned.topic, number), _UNDER_WAY))
                records = own.before(record).translated(known) or ids.data
                passed += ((part, epoch) for part in with_records(out, records, spec, record))
                failure = SchemaMissing(spec.where, source_offset(out, record), why)
                return _stopped(filtered, passed, at, failure)
            if (changed := own.translated(known)) is None:
                passed.append((out, epoch))
            else:
                passed += ((part, epoch) for part in with_records(out, changed, spec))
        if failure is not None:
            return _stopped(filtered, passed, len(found), failure)
        return filtered._replace(outgoing=passed)

    async def _of_schemas(self, topic: str, found: list[SchemaIds]) -> list[SchemaIds]:
        """Returns the ids without those of keys or values that have no schemas.

        The registry is read after the records were fetched: producers register a subject before they write.
        Raises RegistryUnavailable.
        """
        if any(ids.keys for ids in found) and not await self._has_schemas(topic, "key"):
            found = [ids.without_keys() for ids in found]
        if any(ids.keys < len(ids.ids) for ids in found) and not await self._has_schemas(topic, "value"):
            found = [ids.without_values() for ids in found]
        return found

    async def _has_schemas(self, topic: str, part: str) -> bool:
        if (topic, part) not in self._with_schemas:
            if not await self._copier.has_schemas(topic, part):
                return False
            self._with_schemas.add((topic, part))
        return True

    async def _resolve(self, assigned: AssignedPartition, found: Iterable[SchemaIds]) -> set[int]:
        """Registers the schemas that are not known yet, side by side, and waits a moment for them.

        Returns the numbers that are no ids of schemas. They are looked up again for each response, because
        the source's registry may give one of them to a schema later.
        """
        known, other = self._known[assigned.topic], set[int]()
        waits: list[asyncio.Task[None]] = []
        for number in dict.fromkeys(number for ids in found for number in ids.distinct()):
            key = assigned.topic, number
            if number in known or len(waits) == _MOST_AT_ONCE:
                continue
            if key not in self._under_way:
                self._under_way[key] = self._spawn(self._register(number, assigned, other))
            waits.append(self._under_way[key])
        if waits:
            await asyncio.wait(waits, timeout=_PATIENCE_S)
        return other

    async def _register(self, number: int, assigned: AssignedPartition, other: set[int]) -> None:
        """Registers a schema, or adds its number to the other ones."""
        key = assigned.topic, number
        try:
            there = await self._copier.ensure(number, assigned.topic, assigned.destination_topic)
            self._reasons.pop(key, None)
            if there is None:
                other.add(number)
            else:
                self._known[assigned.topic][number] = there
        except (RegistryUnavailable, SchemaNotCopied) as error:
            self._reasons[key] = str(error)
            if len(self._reasons) > _MOST_REASONS:
                del self._reasons[next(iter(self._reasons))]
        finally:
            del self._under_way[key]


def _named(number: int, why: str) -> str:
    return f"schema id {number}: {why}"


def _read(
    outgoing: Sequence[tuple[OutgoingBatch, int]], spec: RewriteSpec
) -> tuple[list[SchemaIds], BatchFailure | None]:
    """Returns the ids of the batches before the first one that can't be read, and why it can't."""
    found = []
    for out, _ in outgoing:
        try:
            found.append(schema_ids(out.batch, spec))
        except BatchFailure as failure:
            return found, failure
    return found, None


def _stopped(
    filtered: FilteredBatches, passed: list[tuple[OutgoingBatch, int]], at: int, failure: BatchFailure
) -> FilteredBatches:
    """Returns the batches that passed. The cursor stays before the record of the failure, in this batch."""
    offset = failure.offset
    return FilteredBatches(
        passed,
        Cursor(offset, filtered.outgoing[at][1]),
        [dropped for dropped in filtered.dropped if dropped.end <= offset],
        failure,
        [record for record in filtered.quarantined if record.offset < offset],
    )
