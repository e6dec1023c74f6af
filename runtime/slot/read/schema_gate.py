"""The schema gate lets a record pass once its schema is in the schema registry of the destination.

It stands behind the filter and the transform. A record whose schema can't be registered waits, and so does
everything behind it in its partition (R4); other partitions go on.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import NamedTuple
from weakref import WeakKeyDictionary

from runtime.batch import BatchFailure, OutgoingBatch, RewriteSpec
from runtime.batch.schema_ids import (
    SchemaIds,
    SchemaMissing,
    records_before,
    schema_ids,
    source_offset,
    with_records,
)
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.schemas import PARTS, RecordPart
from runtime.schemas.client import RegistryUnavailable, SchemaRegistry
from runtime.schemas.copier import SchemaCopier, SchemaNotCopied
from runtime.slot.context import Spawn
from runtime.slot.partition import Cursor, PartitionCopy
from runtime.slot.read.batch_filter import FilteredBatches

# A response waits this long for schemas that are not known yet; then its partitions wait, and others go on.
_PATIENCE_S = 1.0
_MOST_AT_ONCE = 100  # schemas that one response may look up
_MOST_REASONS = 100
_UNDER_WAY = "the schema registries have not answered yet"


class _Lookup:
    """A question to the registries, which responses share. It has no answer where it failed, and `why`.

    It begins once the lookup `after` has ended.
    """

    def __init__(self, ask: Callable[[], Awaitable[bool]], after: _Lookup | None) -> None:
        self._ask = ask
        self._after = after
        self.ended = asyncio.Event()
        self.begun = False
        self.answer: bool | None = None
        self.why = ""

    async def run(self) -> None:
        """Asks."""
        try:
            if self._after is not None:
                await self._after.ended.wait()
                self._after = None
            self.begun = True
            self.answer = await self._ask()
        except (RegistryUnavailable, SchemaNotCopied) as error:
            self.why = str(error)
        finally:
            self.ended.set()


class _Awaited(NamedTuple):
    """A lookup that began after the records of a partition before `end` were fetched.

    If the registry has no schema, these records have none: producers register first. It says nothing of
    records that were fetched later.
    """

    lookup: _Lookup
    topic_id: bytes
    end: Cursor

    def covers(self, topic_id: bytes, epoch: int, offset: int) -> bool:
        """Returns whether a record of a batch had been fetched. The log may have been truncated since."""
        return topic_id == self.topic_id and epoch <= self.end.epoch and offset < self.end.offset

    def without_schema(self, topic_id: bytes, out: OutgoingBatch, epoch: int) -> int:
        """Returns how many records at the start of a batch have no such schema."""
        if self.lookup.answer is not False or not self.covers(topic_id, epoch, source_offset(out, 0)):
            return 0
        return records_before(out, self.end.offset)


_Named = int | RecordPart  # the id of a schema; or the keys or the values of a topic, if they have any
_Key = tuple[str, _Named]  # with the topic


class SchemaGate:
    """The gate of a flow knows the ids of the destination for those of the source, by topic.

    A registry has one id for a schema of a subject, so a slot that begins again finds the same ids there.
    While records wait, `_awaited` has the lookups for the first of them, by partition: however long the
    registries take, their answers count when the records are fetched again.
    """

    def __init__(
        self, spec: FlowSpec, source: SchemaRegistry, destination: SchemaRegistry, spawn: Spawn
    ) -> None:
        self._spawn = spawn
        self._copier = SchemaCopier(source, destination, spec.schemas)
        self._known: defaultdict[str, dict[int, int]] = defaultdict(dict)
        self._with_schemas: set[tuple[str, RecordPart]] = set()
        self._lookups: dict[_Key, _Lookup] = {}
        self._awaited: WeakKeyDictionary[PartitionCopy, dict[_Named, _Awaited]] = WeakKeyDictionary()
        self._reasons: dict[_Key, str] = {}

    @property
    def waiting(self) -> int:
        """The number of schemas that can't be registered now, or that are being registered."""
        return len({key for _, key in self._reasons.keys() | self._lookups.keys() if isinstance(key, int)})

    async def admit(
        self, copy: PartitionCopy, filtered: FilteredBatches, spec: RewriteSpec
    ) -> FilteredBatches:
        """Returns the batches with the destination's ids, up to the first record that must wait."""
        found, failure = _read(filtered.outgoing, spec)
        topic, earlier = copy.key.topic, self._awaited.get(copy, {})
        parts = [part for part in PARTS if any(ids.first_record_of(part) is not None for ids in found)]
        looked_up = [part for part in parts if part in earlier or (topic, part) not in self._with_schemas]
        awaited = await self._look_up_all(copy, filtered, looked_up)
        having = [part for part in parts if (topic, part) in self._with_schemas]
        numbers = (
            number
            for number in _distinct(found, having)
            if number in earlier or number not in self._known[topic]
        )
        awaited |= await self._look_up_all(copy, filtered, numbers)
        passed: list[tuple[OutgoingBatch, int]] = []
        for at, ids in enumerate(found):
            out, epoch = filtered.outgoing[at]
            own, waits, why = self._own(copy, ids, filtered.outgoing[at], awaited)
            stop: BatchFailure | None = None
            if waits is not None:
                stop = SchemaMissing(spec.where, source_offset(out, waits), why)
            changed = own.translated(self._known[topic])
            if changed is None and waits is None:
                passed.append((out, epoch))
                continue
            try:  # the parts before a record that is refused have passed
                passed.extend((part, epoch) for part in with_records(out, changed or ids.data, spec, waits))
            except BatchFailure as refused:
                stop = refused
            if stop is not None:
                self._awaited[copy] = awaited
                return filtered.stopped(passed, at, stop)
        self._awaited.pop(copy, None)
        if failure is not None:
            return filtered.stopped(passed, len(found), failure)
        return filtered._replace(outgoing=passed)

    def _own(
        self,
        copy: PartitionCopy,
        ids: SchemaIds,
        outgoing: tuple[OutgoingBatch, int],
        awaited: Mapping[_Named, _Awaited],
    ) -> tuple[SchemaIds, int | None, str]:
        """Returns which numbers of a batch are ids of schemas, up to the first record that must wait.

        Returns this record as well, if there is one, and why it waits.
        """
        topic, topic_id = copy.key.topic, copy.progress.source_topic_id
        waiting: list[tuple[int, str]] = []
        numbers: defaultdict[int, set[int]] = defaultdict(set)
        for named, looked_up in awaited.items():
            records = looked_up.without_schema(topic_id, *outgoing)
            if isinstance(named, int):
                numbers[records].add(named)
                continue
            ids = ids.without_part(named, records)
            record = ids.first_record_of(named)
            if record is not None and (topic, named) not in self._with_schemas:
                waiting.append((record, looked_up.lookup.why or _UNDER_WAY))
                ids = ids.without_part(named)
        for records, none in numbers.items():
            ids = ids.without(none, records)
        if (missing := ids.first_record_without(self._known[topic])) is not None:
            record, number = missing
            why = self._reasons.get((topic, number), _UNDER_WAY)
            waiting.append((record, f"schema id {number}: {why}"))
        if not waiting:
            return ids, None, ""
        first, why = min(waiting)
        return ids.before(first), first, why

    async def _look_up_all(
        self, copy: PartitionCopy, filtered: FilteredBatches, names: Iterable[_Named]
    ) -> dict[_Named, _Awaited]:
        """Looks these up side by side, and waits a moment for the answers of new lookups.

        What was looked up for the first record here counts, if it did not fail: other partitions do not wait
        for it again. A new lookup begins after these records were fetched.
        """
        topic, topic_id = copy.key.topic, copy.progress.source_topic_id
        out, epoch = filtered.outgoing[0]
        first = source_offset(out, 0)
        earlier = self._awaited.get(copy, {})
        awaited: dict[_Named, _Awaited] = {}
        new: list[_Lookup] = []
        for named in islice(names, _MOST_AT_ONCE):
            known = earlier.get(named)
            if known is not None and not known.lookup.why and known.covers(topic_id, epoch, first):
                awaited[named] = known
                continue
            new.append(self._look_up((topic, named), partial(self._ask, copy, named)))
            awaited[named] = _Awaited(new[-1], topic_id, filtered.cursor)
        if awaited:
            await asyncio.sleep(0)  # lookups that are under way go on, however often this is called
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                for lookup in new:
                    await lookup.ended.wait()
        return awaited

    async def _ask(self, copy: PartitionCopy, named: _Named) -> bool:
        """Registers a schema, or returns whether keys or values have any.

        Returns False for a number that is no id of a schema. Raises RegistryUnavailable, SchemaNotCopied.
        """
        assigned, known = copy.assigned, self._known[copy.key.topic]
        if not isinstance(named, int):
            if await self._copier.has_schemas(assigned.topic, assigned.destination_topic, named):
                self._with_schemas.add((assigned.topic, named))
            return (assigned.topic, named) in self._with_schemas
        if named not in known:  # a lookup before this one may have registered it
            there = await self._copier.ensure(named, assigned.topic, assigned.destination_topic)
            if there is not None:
                known[named] = there
        return named in known

    def _look_up(self, key: _Key, ask: Callable[[], Awaitable[bool]]) -> _Lookup:
        """Returns a lookup that has yet to begin. One of a key is under way at a time."""
        newest = self._lookups.get(key)
        if newest is None or newest.begun:
            newest = self._lookups[key] = _Lookup(ask, newest)
            self._spawn(self._run(key, newest))
        return newest

    async def _run(self, key: _Key, lookup: _Lookup) -> None:
        await lookup.run()
        if self._lookups[key] is lookup:
            del self._lookups[key]
        self._reasons.pop(key, None)
        if lookup.why:
            self._reasons[key] = lookup.why
            if len(self._reasons) > _MOST_REASONS:
                del self._reasons[next(iter(self._reasons))]


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


def _distinct(found: Iterable[SchemaIds], parts: Collection[RecordPart]) -> Iterable[int]:
    """Returns each id in these parts once, in the order in which records first have it."""
    for part in PARTS:
        if part not in parts:
            found = [ids.without_part(part) for ids in found]
    return dict.fromkeys(number for ids in found for number in ids.distinct())
