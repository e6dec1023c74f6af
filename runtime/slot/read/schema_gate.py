"""The schema gate lets a record pass once its schema is in the schema registry of the destination.

It stands behind the filter and the transform. A record whose schema can't be registered waits, and so does
everything behind it in its partition (R4); other partitions go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

from runtime.batch import BatchFailure, OutgoingBatch, RewriteSpec
from runtime.batch.schema_ids import SchemaIds, SchemaMissing, schema_ids, source_offset, with_records
from runtime.contract.records.control import AssignedPartition
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


class _Lookup:
    """A question to the registries, which responses share. It has no answer where it failed, and `why`.

    Only one that begins after records were fetched tells that they have no schema: producers register first.
    """

    def __init__(self, ask: Callable[[], Awaitable[bool]]) -> None:
        self._ask = ask
        self._ended = asyncio.Event()
        self.begun = False
        self.answer: bool | None = None
        self.why = ""

    async def run(self) -> None:
        """Asks."""
        self.begun = True
        try:
            self.answer = await self._ask()
        except (RegistryUnavailable, SchemaNotCopied) as error:
            self.why = str(error)
        finally:
            self._ended.set()

    async def wait(self) -> None:
        """Waits a moment for the end: other partitions of the response wait meanwhile."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await self._ended.wait()


_Key = tuple[str, int | str]  # a topic, and the id of a schema, or "key" or "value"


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
        self._lookups: dict[_Key, _Lookup] = {}
        self._reasons: dict[_Key, str] = {}

    @property
    def waiting(self) -> int:
        """The number of schemas that can't be registered now, or that are being registered."""
        return len({key for _, key in self._reasons.keys() | self._lookups.keys() if isinstance(key, int)})

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
            own, waits = ids.without(other), None
            if (missing := own.first_record_without(known)) is not None:
                waits, number = missing
                own = own.before(waits)
                why = _named(number, self._reasons.get((assigned.topic, number), _UNDER_WAY))
                failure = SchemaMissing(spec.where, source_offset(out, waits), why)
            changed = own.translated(known)
            if changed is None and waits is None:
                passed.append((out, epoch))
                continue
            try:  # the parts before a record that is refused have passed
                passed.extend((part, epoch) for part in with_records(out, changed or ids.data, spec, waits))
            except BatchFailure as refused:
                return _stopped(filtered, passed, at, refused)
            if failure is not None and waits is not None:
                return _stopped(filtered, passed, at, failure)
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
        key = topic, part
        if key in self._with_schemas:
            return True
        lookup, fresh = self._look_up(key, lambda: self._copier.has_schemas(topic, part))
        await lookup.wait()
        if lookup.answer:
            self._with_schemas.add(key)
        elif lookup.answer is None or not fresh:
            raise RegistryUnavailable(lookup.why or _UNDER_WAY)
        return bool(lookup.answer)

    async def _resolve(self, assigned: AssignedPartition, found: Iterable[SchemaIds]) -> set[int]:
        """Registers the schemas that are not known yet, side by side, and waits a moment for them.

        Returns the numbers that are no ids of schemas. They are looked up again for each response, because
        the source's registry may give one of them to a schema later.
        """
        known = self._known[assigned.topic]
        fresh: dict[int, _Lookup] = {}  # another response has waited for those that had begun
        for number in dict.fromkeys(number for ids in found for number in ids.distinct()):
            if number not in known and len(fresh) < _MOST_AT_ONCE:
                register = partial(self._register, number, assigned)
                lookup, begins = self._look_up((assigned.topic, number), register)
                if begins:
                    fresh[number] = lookup
        await asyncio.gather(*(lookup.wait() for lookup in fresh.values()))
        return {number for number, lookup in fresh.items() if lookup.answer is False}

    async def _register(self, number: int, assigned: AssignedPartition) -> bool:
        """Registers a schema. Returns False for a number that is no id of a schema."""
        there = await self._copier.ensure(number, assigned.topic, assigned.destination_topic)
        if there is not None:
            self._known[assigned.topic][number] = there
        return there is not None

    def _look_up(self, key: _Key, ask: Callable[[], Awaitable[bool]]) -> tuple[_Lookup, bool]:
        """Returns the lookup that is under way, or a new one, and whether it has yet to begin."""
        lookup = self._lookups.get(key)
        if lookup is None:
            lookup = self._lookups[key] = _Lookup(ask)
            self._spawn(self._run(key, lookup))
        return lookup, not lookup.begun

    async def _run(self, key: _Key, lookup: _Lookup) -> None:
        await lookup.run()
        del self._lookups[key]
        self._reasons.pop(key, None)
        if lookup.why:
            self._reasons[key] = lookup.why
            if len(self._reasons) > _MOST_REASONS:
                del self._reasons[next(iter(self._reasons))]


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
