"""Translates stored offsets of a flow's topics to the other side, by the map that group sync uses (R6).

    async with open_translator(access, reverse=False) as translator:
        answers = await translator.translate({("orders", 0): {42, 43}})

An offset is that of the next record to read. Its translation is exact: a consumer that continues there reads
every record that it had not read, and none again. What has no exact translation is a problem with a reason,
never a number. The maps are those of the moment of `open_translator`. Nothing is written.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Collection, Mapping
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
from runtime.contract.groups import PendingTranslation, TranslatedOffset, UntranslatableOffset
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.offset_map import EndOfOffsetMap, MappedOffset, NotYetCopied, UnmappedOffset
from runtime.contract.results.groups import UntranslatableReason as Reason
from runtime.contract.spec.route import RouteDecision
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
from runtime.kafka.protocol.offsets import EARLIEST, ListedOffset, TopicPartition
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
_ALL = sys.maxsize
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
        self._known: dict[TopicPartition, Callable[[int], int | Problem] | Problem] = {}
        self._names: dict[TopicPartition, str] = {}
        self._topics: Mapping[str, TopicMetadata] | None = None  # at the side of the stored offsets
        # Of partitions at the destination: the end of the map there, and what lies behind it.
        self._copied_up_to: dict[TopicPartition, int] = {}
        self._tails: dict[TopicPartition, LogBounds] = {}
        self._keys = self._copied_partitions()

    async def translate(self, offsets: Offsets) -> Translations:
        """Returns the translations of offsets that are each the next record to read. Raises WireError.

        Partitions that were seen before are not looked at again.
        """
        partitions = {TopicPartition(*at): wanted for at, wanted in offsets.items()}
        missing = await self._not_copied([at for at in partitions if at not in self._keys])
        await self._inspect([at for at in partitions if at in self._keys and at not in self._known])
        await self._read_tails(
            [
                at
                for at, wanted in partitions.items()
                if max(wanted, default=0) > self._copied_up_to.get(at, _ALL)
            ]
        )
        return {at: missing.get(at) or self._translated(at, wanted) for at, wanted in partitions.items()}

    def _translated(self, at: TopicPartition, wanted: Collection[int]) -> TranslatedPartition | Problem:
        translate = self._known[at]
        if isinstance(translate, Problem):
            return translate
        ordered = sorted(wanted)  # so that each segment of the map is decoded once
        return TranslatedPartition(self._names[at], {offset: translate(offset) for offset in ordered})

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
            mirror = mirrors[source]
            self._names[at] = source.topic if self._reverse else mirror.at.topic
            if (problem := self._obstacle(source, mirror)) is not None:
                self._known[at] = problem
            elif self._reverse:
                self._known[at] = self._backward(at, mirror, starts[source])
            else:
                self._known[at] = self._forward(mirror)

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
            if source is None or self._access.router.verdict(flow, source) is not RouteDecision.TAKEN:
                side = "into" if self._reverse else "from"
                problems[at] = Problem(Reason.NOT_SELECTED, f"{flow} copies nothing {side} {at.topic}")
            elif self._topics is not None and (existing is None or at.partition not in existing.partitions):
                why = f"there is no {at} at {here.cluster}"
                problems[at] = Problem(Reason.NO_PARTITION, why)
            else:
                why = f"nothing of {at} was copied yet"
                problems[at] = Problem(Reason.NOT_STARTED, why)
        return problems

    def _obstacle(self, source: TopicPartition, mirror: MirrorState) -> Problem | None:
        """Returns why no offset of a copied partition can be translated, if there is a reason."""
        if mirror.obstacle is not None:
            recreated = mirror.obstacle in (RECREATED_HERE, RECREATED_THERE)
            return Problem(Reason.RECREATED if recreated else Reason.UNSETTLED, mirror.obstacle.why)
        if self._translator.origins(source.topic):
            return Problem(Reason.MERGED, "both sides write the topic: its offsets have no exact counterpart")
        if isinstance(mirror.log_start, ErrorCode):
            why = f"where the log of {mirror.at} starts is not known"
            return Problem(Reason.UNSETTLED, f"{why}: {mirror.log_start.name}")
        return None

    def _forward(self, mirror: MirrorState) -> Callable[[int], int | Problem]:
        removed = Problem(
            Reason.REMOVED, f"the records there were deleted at {self._access.destination.cluster}"
        )

        def translate(offset: int) -> int | Problem:
            match mirror.clamp(mirror.position(offset)):
                case TranslatedOffset(clamped=True):
                    return removed
                case TranslatedOffset(offset=translated):
                    return translated
                case PendingTranslation():
                    assert mirror.offsets is not None, "there is no obstacle"
                    end = mirror.offsets.end
                    return Problem(Reason.NOT_REACHED, f"the flow has copied up to offset {end} so far")
                case UntranslatableOffset():
                    assert mirror.offsets is not None, "there is no obstacle"
                    return _below(mirror.offsets.low)

        return translate

    def _backward(
        self, at: TopicPartition, mirror: MirrorState, start: ListedOffset | ErrorCode
    ) -> Callable[[int], int | Problem] | Problem:
        source = self._access.source.cluster
        if isinstance(start, ErrorCode):
            why = f"where the log of {at} starts at {source} is not known"
            return Problem(Reason.UNSETTLED, f"{why}: {start.name}")
        assert mirror.offsets is not None, "there is no obstacle"
        offsets, lowest = mirror.offsets, start.offset
        self._copied_up_to[at] = offsets.destination_end
        removed = Problem(Reason.REMOVED, f"the records there were deleted at {source}")

        def translate(offset: int) -> int | Problem:
            match offsets.origin(offset):
                case MappedOffset(offset=origin) | EndOfOffsetMap(offset=origin):
                    return origin if origin >= lowest else removed
                case NotYetCopied():
                    tail = self._tails[at]
                    if offset <= tail.start:
                        return offsets.end
                    if offset > tail.end:
                        return Problem(Reason.NOT_REACHED, f"the log ends at offset {tail.end}")
                    why = f"offset {tail.start} holds a record of another producer, or one copied just now"
                    return Problem(Reason.FOREIGN, why)
                case UnmappedOffset() if offsets.trimmed:
                    return Problem(
                        Reason.REMOVED,
                        f"the records there were deleted at {self._access.destination.cluster}",
                    )
                case UnmappedOffset():
                    return _below(offsets.destination_low)

        return translate

    async def _read_tails(self, partitions: Collection[TopicPartition]) -> None:
        """Reads the first record behind those of the map, and the end of the log, of each new partition.

        Between the map and that record are only markers and aborted records. Without one, both are the end.
        """
        new = [at for at in partitions if at not in self._tails]
        if not new:
            return
        turns = asyncio.Semaphore(_FETCHES)

        async def tail(at: TopicPartition, bounds: LogBounds) -> LogBounds:
            begin = max(self._copied_up_to[at], bounds.start)
            async with turns:
                records = await fetch_records(self._destination, at, begin, bounds.end, 1)
            return LogBounds(records[0].offset if records else bounds.end, bounds.end)

        with as_audit_failure(self._access.destination.cluster, "leave its partition out"):
            bounds = await log_bounds(self._destination, new, self._access.within_s)
            tails = await asyncio.gather(*(tail(at, bounds.get(at, LogBounds(0, 0))) for at in new))
        self._tails.update(zip(new, tails, strict=True))


def _below(low: int) -> Problem:
    return Problem(Reason.BEFORE_MAP, f"below {low}, where the flow's offset map begins")
