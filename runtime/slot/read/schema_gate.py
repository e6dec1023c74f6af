"""The schema gate lets a record pass once its schema is in the schema registry of the destination.

It stands behind the filter and the transform. A record whose schema can't be registered waits, and so does
everything behind it in its partition (R4); other partitions go on.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import NamedTuple
from uuid import UUID
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
from runtime.contract.records.schema_names import SchemaName
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.schemas import PARTS, RecordPart
from runtime.schemas.client import GuidsUnknown, RegistryUnavailable, SchemaRegistry
from runtime.schemas.copier import SchemaCopier, SchemaNotCopied
from runtime.slot.context import Spawn
from runtime.slot.log import log_event
from runtime.slot.partition import Cursor, PartitionCopy
from runtime.slot.read.batch_filter import FilteredBatches

# A response waits this long for schemas that are not known yet; then its partitions wait, and others go on.
_PATIENCE_S = 1.0
_MOST_AT_ONCE = 100  # lookups that one response may begin
_PAUSE_BYTES = 2 << 20  # of unpacked records, after which other tasks of the slot have their turn
_RECORD_BYTES = 500  # take as long as what is done for each record
_LARGE_RECORDS, _LARGE_BYTES = 10_000, 1 << 20  # of a batch that is unpacked beside the event loop
_MOST_REASONS = 100
_GUIDS_AGAIN_S = 60.0  # after a registry knew no GUIDs, until one is looked up again
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

    def covers(self, topic_id: bytes, out: OutgoingBatch) -> bool:
        """Returns whether a batch's first record had been fetched. The log may have been truncated since."""
        fetched = out.epoch <= self.end.epoch and source_offset(out, 0) < self.end.offset
        return topic_id == self.topic_id and fetched

    def without_schema(self, topic_id: bytes, out: OutgoingBatch) -> int:
        """Returns how many records at the start of a batch have no such schema."""
        if self.lookup.answer is not False or not self.covers(topic_id, out):
            return 0
        return records_before(out, self.end.offset)


_Named = SchemaName | RecordPart  # a schema; or the keys or the values of a topic, if they have any
_Key = tuple[str, _Named]  # with the topic


class _Response(NamedTuple):
    """A partition's response: where it ends, until when it waits for lookups, and those for its records.

    `new` are the lookups that it began.
    """

    copy: PartitionCopy
    end: Cursor
    deadline: float
    awaited: dict[_Named, _Awaited]
    new: list[_Lookup]


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
        self._flow = spec.name
        self._without_guids = ""  # why a registry finds no schema by its GUID: until then, records pass
        self._guids_again = 0.0
        self._copier = SchemaCopier(source, destination, spec.schemas)
        self._known: defaultdict[str, dict[SchemaName, SchemaName]] = defaultdict(dict)
        self._with_schemas: set[tuple[str, RecordPart]] = set()
        self._lookups: dict[_Key, _Lookup] = {}
        self._awaited: WeakKeyDictionary[PartitionCopy, dict[_Named, _Awaited]] = WeakKeyDictionary()
        self._reasons: dict[_Key, str] = {}

    @property
    def waiting(self) -> int:
        """The number of schemas that can't be registered now, or that are being registered."""
        waiting = {name for _, name in self._reasons.keys() | self._lookups.keys()}
        return len(waiting.difference(PARTS))

    @property
    def note(self) -> str:
        """What the flow's status says: whether records with the GUID of a schema pass now, and why."""
        if asyncio.get_running_loop().time() >= self._guids_again:
            return ""
        return f"records that name their schema by a GUID do not wait for it: {self._without_guids}"

    async def admit(
        self, copy: PartitionCopy, filtered: FilteredBatches, spec: RewriteSpec
    ) -> FilteredBatches:
        """Returns the batches with the destination's ids, up to the first record that must wait.

        One batch is unpacked at a time (R8).
        """
        response = self._response(copy, filtered)
        passed: list[OutgoingBatch] = []
        read = 0
        for at, out in enumerate(filtered.outgoing):
            stop: BatchFailure | None = None
            try:
                if out.batch.records < _LARGE_RECORDS and out.batch.size < _LARGE_BYTES:
                    ids = schema_ids(out.batch, spec)
                else:
                    ids = await asyncio.to_thread(schema_ids, out.batch, spec)
                ids = self._with_guids(ids)
                await self._look_up_new(response, out, ids)
                readable, waits, why = ids, None, ""
                if response.awaited:  # else all that the batch names is known
                    readable, waits, why = self._own(response, self._with_guids(ids), out)
                if waits is not None:
                    stop = SchemaMissing(spec.where, source_offset(out, waits), why)
                changed = readable.translated(self._known[copy.key.topic])
                if changed is None and waits is None:
                    passed.append(out)
                else:  # the parts before a record that is refused have passed
                    data = ids.data if changed is None else changed
                    passed.extend(with_records(out, data, spec, waits))
            except BatchFailure as refused:
                stop = refused
            if stop is not None:
                self._awaited[copy] = response.awaited
                return filtered.stopped(passed, at, stop)
            read += len(ids.data) + out.batch.records * _RECORD_BYTES
            if read > _PAUSE_BYTES:
                read = 0
                await asyncio.sleep(0)
        self._awaited.pop(copy, None)
        return filtered._replace(outgoing=passed)

    def _with_guids(self, ids: SchemaIds) -> SchemaIds:
        """Returns the ids without GUIDs for a while after a registry found no schema by its GUID."""
        is_known = asyncio.get_running_loop().time() >= self._guids_again
        return ids if is_known else ids._replace(guids=())

    def _response(self, copy: PartitionCopy, filtered: FilteredBatches) -> _Response:
        """Returns the response with the earlier lookups that count for its first record and did not fail."""
        topic_id, first = copy.progress.source_topic_id, filtered.outgoing[0]
        awaited = {
            named: earlier
            for named, earlier in self._awaited.get(copy, {}).items()
            if not earlier.lookup.why
            and not (isinstance(named, UUID) and earlier.lookup.answer is False)
            and earlier.covers(topic_id, first)
        }
        deadline = asyncio.get_running_loop().time() + _PATIENCE_S
        return _Response(copy, filtered.cursor, deadline, awaited, [])

    async def _look_up_new(self, response: _Response, out: OutgoingBatch, ids: SchemaIds) -> None:
        """Looks up what is not known of the ids in a batch, and waits a moment for the answers."""
        topic = response.copy.key.topic
        if parts := [part for part in ids.parts if (topic, part) not in self._with_schemas]:
            await self._look_up_all(response, out, parts)
        for part in parts:
            if (topic, part) not in self._with_schemas:
                ids = ids.without_part(part)
        if names := ids.unknown(self._known[topic]):
            await self._look_up_all(response, out, names)

    def _own(
        self, response: _Response, ids: SchemaIds, out: OutgoingBatch
    ) -> tuple[SchemaIds, int | None, str]:
        """Returns which numbers of a batch are ids of schemas, up to the first record that must wait.

        Returns this record as well, if there is one, and why it waits.
        """
        topic, topic_id = response.copy.key.topic, response.copy.progress.source_topic_id
        waiting: list[tuple[int, str]] = []
        numbers: defaultdict[int, set[int]] = defaultdict(set)
        for named, looked_up in response.awaited.items():
            records = looked_up.without_schema(topic_id, out)
            if isinstance(named, int):
                numbers[records].add(named)
            if not isinstance(named, str):
                continue
            ids = ids.without_part(named, records)
            if named in ids.parts and (topic, named) not in self._with_schemas:
                waiting.append((ids.first_record_of(named), looked_up.lookup.why or _UNDER_WAY))
                ids = ids.without_part(named)
        for records, none in numbers.items():
            ids = ids.without(none, records)
        for name, record in islice(ids.unknown(self._known[topic]).items(), 1):
            what = f"schema id {name}" if isinstance(name, int) else f"schema {name}"
            waiting.append((record, f"{what}: {self._reasons.get((topic, name), _UNDER_WAY)}"))
        if not waiting:
            return ids, None, ""
        first, why = min(waiting)
        return ids.before(first), first, why

    async def _look_up_all(self, response: _Response, out: OutgoingBatch, names: Iterable[_Named]) -> None:
        """Looks these up side by side, and waits a moment for the answers of new lookups.

        A lookup of this response, or an earlier one that counts for this batch, is not made again. A new
        lookup begins after the records of the response were fetched.
        """
        topic, topic_id = response.copy.key.topic, response.copy.progress.source_topic_id
        for named in names:
            earlier = response.awaited.get(named)
            if earlier is None or not earlier.covers(topic_id, out):
                if len(response.new) == _MOST_AT_ONCE:
                    break
                lookup = self._look_up((topic, named), partial(self._ask, response.copy, named))
                response.new.append(lookup)
                response.awaited[named] = _Awaited(lookup, topic_id, response.end)
        await asyncio.sleep(0)  # lookups that are under way go on, however often this is called
        with suppress(TimeoutError):
            async with asyncio.timeout_at(response.deadline):
                for lookup in response.new:
                    await lookup.ended.wait()

    async def _ask(self, copy: PartitionCopy, named: _Named) -> bool:
        """Registers a schema, or returns whether keys or values have any.

        Returns False for a number that is no id of a schema, and where a registry knows no GUIDs. Raises
        RegistryUnavailable, SchemaNotCopied.
        """
        assigned, translation = copy.assigned, self._known[copy.key.topic]
        if isinstance(named, UUID):
            try:
                await self._copier.ensure_guid(named, assigned.topic, assigned.destination_topic)
            except GuidsUnknown as unknown:
                if not self._without_guids:
                    log_event("schema_guids_unknown", key=self._flow, flow=self._flow, error=str(unknown))
                self._without_guids = str(unknown)
                self._guids_again = asyncio.get_running_loop().time() + _GUIDS_AGAIN_S
                return False
            self._without_guids, self._guids_again = "", 0.0
            translation[named] = named
            return True
        if isinstance(named, str):
            if await self._copier.has_schemas(assigned.topic, assigned.destination_topic, named):
                self._with_schemas.add((assigned.topic, named))
            return (assigned.topic, named) in self._with_schemas
        if named not in translation:  # a lookup before this one may have registered it
            there = await self._copier.ensure(named, assigned.topic, assigned.destination_topic)
            if there is not None:
                translation[named] = there
        return named in translation

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
