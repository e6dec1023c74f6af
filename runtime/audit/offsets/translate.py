"""Translates stored offsets of a flow's topics to the other side, by the map that group sync uses (R6).

    async with open_translator(access, reverse=False) as translator:
        answers = await translator.translate({("orders", 0): {42, 43}})

An offset is that of the next record to read. Its translation is exact: a consumer that continues there reads
every record that it had not read, and none again. What has no exact translation is a problem with a reason,
never a number. The maps are those of the moment of `open_translator`. Nothing is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from runtime.audit.ledger import (
    FlowAccess,
    as_audit_failure,
    existing_ledger,
    open_cluster,
    open_if_answering,
)
from runtime.audit.partition_logs import LogBounds, fetch_records, log_bounds
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.groups import PendingTranslation, TranslatedOffset, UntranslatableOffset
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.offset_map import (
    EndOfOffsetMap,
    MappedOffset,
    NotYetCopied,
    OffsetMap,
    UnmappedOffset,
)
from runtime.contract.results.groups import UntranslatableReason as Reason
from runtime.contract.spec.naming import TopicPartition
from runtime.groups.translation import (
    RECREATED_HERE,
    RECREATED_THERE,
    MirrorState,
    Translator,
    mirror_states,
)
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.metadata import TopicMetadata
from runtime.kafka.protocol.offsets import EARLIEST, ListedOffset
from runtime.kafka.queries import list_offsets


class Problem(NamedTuple):
    """Says why an offset has no translation, by a name and by a sentence."""

    reason: Reason
    why: str


class TranslatedPartition(NamedTuple):
    """The translations of a partition's offsets. `topic` is its name at the other side."""

    topic: str
    offsets: Mapping[int, int | Problem]


_FETCHES = 16  # at the same time
Offsets = Mapping[tuple[str, int], Collection[int]]
Translations = dict[tuple[str, int], TranslatedPartition | Problem]  # a problem of the whole partition


@asynccontextmanager
async def open_translator(access: FlowAccess, *, reverse: bool) -> AsyncIterator[OffsetTranslator]:
    """Opens both clusters of a flow and reads its offset maps.

    `reverse` translates from the destination to the source. Without `reverse`, a source that does not answer
    is left out. Raises AuditFailure, also for errors inside the block.
    """
    async with AsyncExitStack() as stack:
        destination = await stack.enter_async_context(open_cluster(access.destination, access.within_s))
        maps = await existing_ledger(destination, access.destination.cluster)
        source: KafkaCluster | None
        if reverse:
            source, why = await stack.enter_async_context(open_cluster(access.source, access.within_s)), ""
        else:
            source, why = await open_if_answering(access, stack)
        with as_audit_failure(access.destination.cluster):
            translator = Translator(access.flow, access.router, maps, None)
            await translator.refresh(())
            yield OffsetTranslator(access, translator, source, destination, reverse=reverse, source_why=why)


class OffsetTranslator:
    """Translates offsets. `source_why` says why the source does not answer, where it does not."""

    def __init__(
        self,
        access: FlowAccess,
        translator: Translator,
        source: KafkaCluster | None,
        destination: KafkaCluster,
        *,
        reverse: bool,
        source_why: str = "",
    ) -> None:
        self.source_why = source_why
        self._access = access
        self._translator = translator
        self._source, self._destination = source, destination
        self._reverse = reverse
        self._mirrors: dict[TopicPartition, MirrorState | Problem] = {}
        self._starts: dict[TopicPartition, int] = {}  # of logs at the source, where it gets the offsets
        self._topics: Mapping[str, TopicMetadata] | None = None  # at the side of the stored offsets
        self._tails: dict[TopicPartition, LogBounds] = {}  # of logs at the destination, behind the map
        self._keys = self._copied_partitions()

    async def translate(self, offsets: Offsets) -> Translations:
        """Returns the translations of offsets that are each the next record to read. Raises WireError.

        Partitions that were seen before are not looked at again.
        """
        partitions = {TopicPartition(*at): wanted for at, wanted in offsets.items()}
        missing = await self._not_copied([at for at in partitions if at not in self._keys])
        await self._inspect([at for at in partitions if at in self._keys and at not in self._mirrors])
        if self._reverse:
            await self._read_tails(partitions)
        return {at: missing.get(at) or self._translated(at, wanted) for at, wanted in partitions.items()}

    def _translated(self, at: TopicPartition, wanted: Collection[int]) -> TranslatedPartition | Problem:
        mirror = self._mirrors[at]
        if isinstance(mirror, Problem):
            return mirror
        ordered = sorted(wanted)  # so that each segment of the map is decoded once
        if self._reverse:
            topic, translated = (
                self._keys[at].topic,
                [self._backward(at, mirror, offset) for offset in ordered],
            )
        else:
            topic, translated = mirror.at.topic, [self._forward(mirror, offset) for offset in ordered]
        return TranslatedPartition(topic, dict(zip(ordered, translated, strict=True)))

    def _copied_partitions(self) -> dict[TopicPartition, PartitionKey]:
        """Returns the partitions that the flow copied, by their names at the side of the stored offsets.

        A flow may have copied two topics into one, one after the other. The one that it copies now counts.
        """
        progress = self._translator.flow_progress()
        if not self._reverse:
            return {key.at: key for key in progress}
        route = self._access.router.routes[self._access.flow]
        keys: dict[TopicPartition, PartitionKey] = {}
        for key, copied in progress.items():
            at = TopicPartition(copied.destination_topic, key.partition)
            if at not in keys or route.source_topic(at.topic) == key.topic:
                keys[at] = key
        return keys

    async def _inspect(self, partitions: Collection[TopicPartition]) -> None:
        if not partitions:
            return
        place = {at: self._keys[at].at for at in partitions}
        mirrors = await mirror_states(self._translator, self._source, self._destination, set(place.values()))
        starts: dict[TopicPartition, ListedOffset | ErrorCode] = {}
        if self._reverse and self._source is not None:
            with as_audit_failure(self._access.source.cluster):
                starts = await list_offsets(self._source, dict.fromkeys(place.values(), EARLIEST))
        for at, source in place.items():
            mirror, start = mirrors[source], starts.get(source)
            self._mirrors[at] = self._obstacle(source, mirror, start) or mirror
            if isinstance(start, ListedOffset):
                self._starts[at] = start.offset

    async def _not_copied(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Problem]:
        """Returns why the flow has copied nothing of these partitions.

        A file may name any number of them: they are not kept, and the topics are listed once.
        """
        flow, route = self._access.flow, self._access.router.routes[self._access.flow]
        here = self._access.destination if self._reverse else self._access.source
        cluster = self._destination if self._reverse else self._source
        if partitions and self._topics is None and cluster is not None:
            with as_audit_failure(here.cluster):
                self._topics = await cluster.all_topics()
        problems = {}
        for at in partitions:
            source = route.source_topic(at.topic) if self._reverse else at.topic
            existing = self._topics.get(at.topic) if self._topics is not None else None
            if source is None or not self._access.router.verdict(flow, source).taken:
                side = "into" if self._reverse else "from"
                problems[at] = Problem(Reason.NOT_SELECTED, f"{flow} copies nothing {side} {at.topic}")
            elif self._topics is not None and (existing is None or at.partition not in existing.partitions):
                why = f"there is no {at} at {here.cluster}"
                problems[at] = Problem(Reason.NO_PARTITION, why)
            else:
                why = f"nothing of {at} was copied yet"
                problems[at] = Problem(Reason.NOT_STARTED, why)
        return problems

    def _obstacle(
        self, source: TopicPartition, mirror: MirrorState, start: ListedOffset | ErrorCode | None
    ) -> Problem | None:
        """Returns why no offset of a copied partition can be translated, if there is a reason."""
        if mirror.obstacle is not None:
            recreated = mirror.obstacle in (RECREATED_HERE, RECREATED_THERE)
            return Problem(Reason.RECREATED if recreated else Reason.UNSETTLED, mirror.obstacle.why)
        if self._translator.origins(source.topic):
            return Problem(Reason.MERGED, "both sides write the topic: its offsets have no exact counterpart")
        if isinstance(mirror.log_start, ErrorCode):
            why = f"where the log of {mirror.at} starts is not known"
            return Problem(Reason.UNSETTLED, f"{why}: {mirror.log_start.name}")
        if isinstance(start, ErrorCode):
            why = f"where the log of {source} starts at {self._access.source.cluster} is not known"
            return Problem(Reason.UNSETTLED, f"{why}: {start.name}")
        return None

    def _forward(self, mirror: MirrorState, offset: int) -> int | Problem:
        match mirror.clamp(mirror.position(offset)):
            case TranslatedOffset(clamped=True):
                return _removed(self._access.destination)
            case TranslatedOffset(offset=translated):
                return translated
            case PendingTranslation():
                copied_end = _map_of(mirror).end
                return Problem(Reason.NOT_REACHED, f"the flow has copied up to offset {copied_end} so far")
            case UntranslatableOffset():
                return _below(_map_of(mirror).low)

    def _backward(self, at: TopicPartition, mirror: MirrorState, offset: int) -> int | Problem:
        offsets = _map_of(mirror)
        match offsets.origin(offset):
            case MappedOffset(offset=origin) | EndOfOffsetMap(offset=origin):
                return origin if origin >= self._starts[at] else _removed(self._access.source)
            case NotYetCopied():
                tail = self._tails[at]
                if offset <= tail.start:
                    return offsets.end
                if offset > tail.end:
                    return Problem(Reason.NOT_REACHED, f"the log ends at offset {tail.end}")
                why = f"offset {tail.start} holds a record of another producer, or one copied just now"
                return Problem(Reason.FOREIGN, why)
            case UnmappedOffset() if offsets.trimmed:
                return _removed(self._access.destination)
            case UnmappedOffset():
                return _below(offsets.destination_low)

    async def _read_tails(self, partitions: Mapping[TopicPartition, Collection[int]]) -> None:
        """Reads the first record behind those of the map, and the end of the log, where an offset lies there.

        Between the map and that record are only markers and aborted records. Without one, both are the end.
        """
        new: dict[TopicPartition, int] = {}  # with the end of the map
        for at, wanted in partitions.items():
            mirror = self._mirrors.get(at)
            if isinstance(mirror, MirrorState) and at not in self._tails:
                copied_end = _map_of(mirror).destination_end
                if max(wanted, default=0) > copied_end:
                    new[at] = copied_end
        if not new:
            return
        turns = asyncio.Semaphore(_FETCHES)

        async def tail(at: TopicPartition, bounds: LogBounds) -> LogBounds:
            begin = max(new[at], bounds.start)
            async with turns:
                records = await fetch_records(self._destination, at, begin, bounds.end, 1)
            return LogBounds(records[0].offset if records else bounds.end, bounds.end)

        with as_audit_failure(self._access.destination.cluster, "leave its partition out"):
            bounds = await log_bounds(self._destination, new, self._access.within_s)
            tails = await asyncio.gather(*(tail(at, bounds.get(at, LogBounds(0, 0))) for at in new))
        self._tails.update(zip(new, tails, strict=True))


def _map_of(mirror: MirrorState) -> OffsetMap:
    assert mirror.offsets is not None, "there is no obstacle"
    return mirror.offsets


def _removed(side: ClusterEndpoint) -> Problem:
    return Problem(Reason.REMOVED, f"the records there were deleted at {side.cluster}")


def _below(low: int) -> Problem:
    return Problem(Reason.BEFORE_MAP, f"below {low}, where the flow's offset map begins")
