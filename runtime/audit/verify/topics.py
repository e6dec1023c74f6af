"""Plans and compares a flow between clusters: its topics and their mirrors, less what differs by design."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator, Container, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from runtime.audit.ledger import as_audit_failure, copied_progress, existing_ledger, producers_at
from runtime.audit.partition_logs import (
    CommittedRecordReader,
    PartitionLogs,
    fetch_places,
    logs_of,
    open_spec,
)
from runtime.audit.verify.comparer import RecordComparer
from runtime.audit.verify.pieces import (
    PIECE,
    SAMPLED,
    ComparedRecord,
    MirrorRange,
    PlannedPartition,
    RecordContent,
    RecordDifference,
    VerifiedPiece,
    VerifyRequest,
)
from runtime.audit.verify.plan import Comparison, chosen_of, noted, planned
from runtime.audit.verify.provenance import ProvenanceFilter, original_of
from runtime.audit.verify.schemas import ComparableContents, comparable_contents
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.records.ledger import Orphans, PartitionKey, Progress
from runtime.contract.records.offset_map import (
    EndOfOffsetMap,
    MappedOffset,
    OffsetMap,
    Run,
    decode_runs,
    encode_runs,
)
from runtime.contract.records.provenance import ClusterPartition, ClusterTopic, FlowProducer
from runtime.contract.spec import naming
from runtime.contract.spec.flow import ENDED
from runtime.contract.spec.naming import TopicPartition, is_other_topic
from runtime.contract.spec.selection import NamePatterns
from runtime.contract.spec.transform import TransformSpec
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import Disconnected
from runtime.ledger.offset_maps import OffsetMaps, offset_maps_at
from runtime.schemas.client import RegistryUnavailable
from runtime.slot.budget import TokenBucket

if TYPE_CHECKING:
    from runtime.sql.transformer import Evaluates


class MirrorComparison(Comparison[MirrorRange]):
    """Compares the topics of a flow between clusters with their mirrors."""

    async def plan(self) -> list[PlannedPartition]:
        """Reads the ledger after the destination's end offsets, so that it covers all records below them."""
        request, flow = self.request, self.request.flow
        async with (
            comparable_contents(request),  # without the registries, nothing can be compared
            open_spec(request.source, flow.source) as source,
            open_spec(request.destination, flow.destination) as destination,
        ):
            opened = await existing_ledger(destination, flow.destination)
            copied = await copied_progress(opened, flow.destination, flow.name)
            topics = request.chosen({key.topic for key in copied}, flow.destination, "copied", "topic")
            keys = sorted(key for key in copied if key.topic in topics)
            copies = [TopicPartition(copied[key].destination_topic, key.partition) for key in keys]
            destination_logs = await logs_of(destination, flow.destination, copies, request.within_s)
            progress = await copied_progress(opened, flow.destination, flow.name)
            with as_audit_failure(flow.source):
                originals = [key.at for key in keys]
                source_logs = await logs_of(source, flow.source, originals, request.within_s)
                left_by_opposite = await _left_by_the_opposite(request, source, progress)
        orphans, logs = opened.ledger.orphans(flow.name), (source_logs, destination_logs)
        return [
            mirrored_partition(
                request, number, key, opened, orphans[key], *logs, left_by_opposite.get(key, ())
            )
            for number, key in enumerate(keys)
        ]

    async def compare(
        self, pieces: Sequence[MirrorRange], bucket: TokenBucket, evaluator: Evaluates | None = None
    ) -> list[VerifiedPiece]:
        request, flow = self.request, self.request.flow
        transform = None
        if flow.transform is not None and evaluator is not None:
            transform = SourceTransform(flow.transform, evaluator)
        results = []
        async with (
            comparable_contents(request) as contents_of,
            open_spec(request.source, flow.source) as source,
            open_spec(request.destination, flow.destination) as destination,
        ):
            writers, copiers = await producers_at(source), await producers_at(destination)
            for piece in pieces:
                home = ClusterTopic(destination.cluster_id, piece.destination_topic)
                filter_ = ProvenanceFilter(flow, piece.topic, home, writers)
                contents = contents_of(piece.topic, piece.destination_topic)
                mirror = MirrorPiece(piece, filter_, copiers, source.cluster_id, contents)
                await _compare(mirror, request, source, destination, bucket, transform)
                results.append(mirror.result)
        return results

    def size(self, pieces: Sequence[MirrorRange]) -> int:
        return sum(
            max(piece.high - piece.low, piece.destination_high - piece.destination_low) for piece in pieces
        )


async def _left_by_the_opposite(
    request: VerifyRequest, source: KafkaCluster, progress: Mapping[PartitionKey, Progress]
) -> dict[PartitionKey, list[tuple[int, int]]]:
    """Returns destination offsets that the opposite flow gave up, or had not copied when it ended.

    They are the destination's own records. The opposite flow's ledger is at the source.
    """
    opposite = request.opposite
    opened = await offset_maps_at(source, fresh=True) if opposite is not None else None
    if opened is None or opposite is None:
        return {}
    await opened.ledger.refresh(opposite)
    theirs = opened.ledger.all_progress(opposite)
    orphans = opened.ledger.orphans(opposite)
    left_by_key = {}
    for key, made in progress.items():
        other = PartitionKey(opposite, made.destination_topic, key.partition)
        left_by_key[key] = [(left.low, left.end) for left in orphans[other].ranges(made.destination_topic_id)]
        if other in theirs and not is_other_topic(theirs[other].source_topic_id, made.destination_topic_id):
            left_by_key[key] += [(gap.low, gap.end) for gap in theirs[other].gaps]
    return left_by_key


def mirrored_partition(
    request: VerifyRequest,
    number: int,
    key: PartitionKey,
    opened: OffsetMaps,
    orphans: Orphans,
    source_logs: PartitionLogs,
    destination_logs: PartitionLogs,
    left_by_opposite: Iterable[tuple[int, int]],
) -> PlannedPartition:
    """Plans a partition by its offset map, and the logs of both sides.

    `left_by_opposite` are offsets of the destination's own records, which the opposite flow did not copy.
    Where the plan contains all copies, it names the replays of which it must contain all records: they lie
    behind the records that the flow had copied before.
    """
    flow, progress, offsets = request.flow, opened.progress(key.flow)[key], opened.get(key)
    assert offsets is not None, "it is decided"
    topic, source_id = progress.destination_topic, progress.source_topic_id
    at_copy = TopicPartition(topic, key.partition)
    unread = source_logs.problem(key.at, source_id, flow.source, "was copied") or destination_logs.problem(
        at_copy, progress.destination_topic_id, flow.destination, "was copied"
    )
    if unread:
        return PlannedPartition(key, topic, offsets.low, offsets.low, unread=unread)
    start = source_logs.bounds[key.at].start
    copies_start, copies_end = destination_logs.bounds[at_copy]
    compacted = key.topic in source_logs.compacted or topic in destination_logs.compacted
    given_up = [*orphans.ranges(source_id), *((gap.low, gap.end, gap.why) for gap in progress.gaps)]
    replayed = [
        (low, replay.end, replay.records)
        for low, replay in orphans.replays(source_id)
        if replay.topic == topic
    ]
    # Only the flow may write behind the copied records, unless it has ended, or this topic was promoted.
    alone = flow.state not in ENDED and not NamePatterns(flow.promoted).match(key.topic)
    tail_end = copies_end if (alone or replayed) and request.high is None else 0
    kept_from = offsets.low  # the first copied record that the destination still has
    if copies_start > offsets.destination_low:
        origin = offsets.origin(copies_start)
        kept_from = origin.offset if isinstance(origin, MappedOffset) else offsets.end

    def copied_to(offset: int) -> int:
        """Returns the destination offset at which a range from this source offset on begins."""
        place, copied = offsets.translate(offset), offsets.destination_low
        if isinstance(place, MappedOffset | EndOfOffsetMap) and offset != offsets.low:
            copied = place.offset
        return max(copied, copies_start)

    def piece(low: int, high: int) -> MirrorRange:
        begin = copied_to(low)
        return MirrorRange(
            number=number,
            topic=key.topic,
            partition=key.partition,
            source_id=source_id,
            destination_topic=topic,
            destination_id=progress.destination_topic_id,
            low=low,
            high=high,
            destination_low=begin,
            destination_high=max(copied_to(high), tail_end if high == offsets.end else 0),
            owned_end=offsets.destination_end,
            runs=encode_runs(_runs(offsets, low, high), low, begin),
            gaps=tuple(gap for gap in given_up if gap[0] <= high and low <= gap[1]),
            compacted=compacted,
            alone=alone,
            replayed=tuple(replayed),
            own=tuple(left_by_opposite),
        )

    def pieces(_: int, low: int, high: int) -> list[MirrorRange]:
        share = request.sample
        if low > high or (low == high and share < 100):
            return []
        size = PIECE if share >= 100 else SAMPLED
        begins = range(low, max(high, low + 1), size)  # without a record, what lies behind is compared
        return [piece(begins[at], min(begins[at] + size, high)) for at in chosen_of(len(begins), share)]

    plan = planned(
        request,
        key,
        topic,
        offsets.low,
        offsets.end,
        pieces,
        first=min(start, offsets.low),
        start=start,
        before=f"below the offset map, which begins at {offsets.low}",
        behind=f"not replicated yet by {flow.name}",
        gone=[
            (start, f"retention passed at {flow.source}"),
            (kept_from, f"retention passed at {flow.destination}"),
        ],
    )
    whole = request.sample >= 100 and not compacted
    if whole and plan.pieces and plan.pieces[-1].high >= offsets.end:
        begin = copied_to(plan.pieces[0].low)
        plan.replayed = [replay for replay in replayed if begin <= offsets.destination_behind(replay[0])]
    return plan


def _runs(offsets: OffsetMap, low: int, high: int) -> Iterator[Run]:
    """Yields the runs of the range, cut at both ends."""
    for span in offsets.spans:
        if span.low < high and low < span.end:
            for run in span.runs:
                begin, end = max(run.source, low), min(run.source_end, high)
                if begin < end:
                    yield Run(begin, run.destination + begin - run.source, end - begin)


async def _compare(
    mirror: MirrorPiece,
    request: VerifyRequest,
    source: KafkaCluster,
    destination: KafkaCluster,
    bucket: TokenBucket,
    transform: SourceTransform | None,
) -> None:
    piece = mirror.piece
    at = TopicPartition(piece.topic, piece.partition)
    at_copy = TopicPartition(piece.destination_topic, piece.partition)

    async def originals() -> AsyncIterator[list[ComparedRecord]]:
        async for records in CommittedRecordReader(
            source, at, piece.source_id, piece.low, piece.high, request.within_s, bucket
        ):
            if transform is None:
                yield await mirror.originals(records)
            else:
                yield await mirror.originals(*await transform.apply(piece.topic, records))

    async def copies() -> AsyncIterator[list[ComparedRecord]]:
        """Yields copies, and compares replays with their originals from anywhere in the source partition."""
        low, high = piece.destination_low, piece.destination_high
        async for records in CommittedRecordReader(
            destination, at_copy, piece.destination_id, low, high, request.within_s, bucket
        ):
            copied, replays = mirror.copies(records)
            if replays:
                offsets = [replay.at for replay in replays if replay.at is not None]
                replayed = await fetch_places(source, at, piece.source_id, offsets, bucket.take)
                if transform is not None and replayed:  # a replay applies it, too
                    transformed, _ = await transform.apply(piece.topic, list(replayed.values()))
                    replayed = {record.offset: record for record in transformed}
                await mirror.compare(replays, replayed)
            yield copied

    with noted(mirror.result):
        await mirror.run(originals(), copies())


class SourceTransform:
    """Applies the flow's transform again to records that are read at the source."""

    def __init__(self, transform: TransformSpec, evaluator: Evaluates) -> None:
        from runtime.sql.transformer import Transformer

        self._transformer = Transformer(transform, evaluator)
        self._transform = transform

    async def apply(
        self, topic: str, records: Sequence[ConsumerRecord]
    ) -> tuple[list[ConsumerRecord], frozenset[int]]:
        """Returns the records as they are copied, and the offsets of those that are not.

        A bad record is returned as it is where the flow stops before it, and is not copied where the flow
        quarantines it. Raises WireError where a schema registry does not answer.
        """
        if topic == naming.HEARTBEATS:  # they are copied as they are
            return list(records), frozenset()
        try:
            answers = await self._transformer.evaluate(records)
        except RegistryUnavailable as error:
            raise Disconnected("schema registry", str(error), sent=False) from None
        transformed: list[ConsumerRecord] = []
        filtered: set[int] = set()
        for record, answer in zip(records, answers.to_pylist(), strict=True):
            outcome = self._transformer.outcome(record.key, record.value, record.headers, answer)
            if outcome.decision == "bad" and not self._transform.quarantines:
                transformed.append(record)
            elif outcome.decision in ("bad", "filtered"):
                transformed.append(replace(record, value=None))
                filtered.add(record.offset)
            else:
                transformed.append(replace(record, value=outcome.value, headers=outcome.headers))
        return transformed, frozenset(filtered)


class MirrorPiece:
    """Normalises the records of a piece's both sides, less those that are not to be compared.

    `result` counts those by reason. `copiers`: the flow of each producer id that writes into the destination.

    A record counts as replayed by salvage where three things agree: the producer id that wrote it is
    registered as the flow's replayer for this topic, its last `__repl` header names a place of this partition
    at the source, and the ledger has that source offset in a replayed range.
    """

    def __init__(
        self,
        piece: MirrorRange,
        provenance: ProvenanceFilter,
        copiers: Mapping[int, FlowProducer],
        source_id: str,
        contents: ComparableContents,
    ) -> None:
        self.piece, self.result = piece, VerifiedPiece.begin(piece)
        self._contents = contents
        self._provenance, self._flow = provenance, provenance.flow
        self._copiers, self._replayed = copiers, sorted(piece.replayed)
        self._place = ClusterPartition(source_id, piece.topic, piece.partition)
        self._passed: dict[int, int] = {}  # the last original of each range: a replay keeps their order
        runs = decode_runs(piece.runs, piece.low, piece.destination_low)
        self._to = RunOffsetTranslator([(run.source, run.destination, run.records) for run in runs])
        self._from = RunOffsetTranslator([(run.destination, run.source, run.records) for run in runs])

    async def run(
        self,
        originals: AsyncIterator[Sequence[ComparedRecord]],
        copies: AsyncIterator[Sequence[ComparedRecord]],
    ) -> None:
        """Compares normalised records. Raises what the iterators raise."""
        compacted, result = self.piece.compacted, self.result
        comparer = RecordComparer(
            result, in_order=not compacted, source_only=compacted, destination_only=compacted
        )
        await comparer.run(originals, copies)
        if not result.more:
            result.end = self.piece.high

    async def originals(
        self, records: Sequence[ConsumerRecord], filtered: Container[int] = frozenset()
    ) -> list[ComparedRecord]:
        """Normalises records of the source. Those at the offsets `filtered` must not have a copy.

        Raises RegistryUnavailable.
        """
        normalised = []
        contents = await self._contents.originals(records)
        for record, content in zip(records, contents, strict=True):
            at = self._to.other(record.offset)
            if at is not None:
                if record.offset in filtered:
                    continue
            elif self._replayed_from(record.offset) is not None:
                continue  # it is compared when its replay is read
            elif any(low <= record.offset < end for low, end, _ in self.piece.gaps):
                self.result.given_up += 1
                continue
            elif self._provenance.drops(record):
                self.result.kept_back += 1
                continue
            elif record.offset in filtered:
                self.result.filtered += 1
                continue
            normalised.append(ComparedRecord(record.offset, at, content))
        return normalised

    def copies(self, records: Iterable[ConsumerRecord]) -> tuple[list[ComparedRecord], list[ComparedRecord]]:
        """Normalises records of the destination, and returns those apart that salvage replayed.

        A replay is at the offset of its original.
        """
        normalised, replays = list[ComparedRecord](), list[ComparedRecord]()
        mirror = self.piece.destination_topic
        for record in records:
            at = self._from.other(record.offset)
            if at is None:
                original = original_of(record, self._copiers, self._flow.name, mirror, self._place)
                if original is not None and self._replayed_from(original) is not None:
                    content = self._contents.copy(record)
                    replays.append(ComparedRecord(record.offset, original, content))
                    continue
                if self._is_of_others(record):
                    self.result.others += 1
                    continue
            normalised.append(ComparedRecord(record.offset, at, self._contents.copy(record)))
        return normalised, replays

    async def compare(
        self, replays: Iterable[ComparedRecord], originals: Mapping[int, ConsumerRecord]
    ) -> None:
        """Compares replays with their originals, as far as the source has them.

        Raises RegistryUnavailable.
        """
        read = await self._contents.originals(originals.values())
        contents: dict[int | None, RecordContent] = dict(zip(originals, read, strict=True))
        for replay in replays:
            self._compare_replay(replay, contents.get(replay.at))

    def _compare_replay(self, replay: ComparedRecord, original: RecordContent | None) -> None:
        """Counts a replay, whose original is `at`, and notes it where it differs."""
        assert replay.at is not None, "a replay has an original"
        at, low = replay.at, self._replayed_from(replay.at)
        assert low is not None, "it is in a replayed range"
        result, copy = self.result, replay._replace(at=None)  # the map does not have it
        if at <= self._passed.get(low, -1):
            result.edits.append(RecordDifference("extra", at, None, copy, at))
            return
        self._passed[low] = at
        result.replayed[low] = result.replayed.get(low, 0) + 1
        if original is not None and original != replay.content:
            result.compared += 1
            result.edits.append(RecordDifference("changed", at, ComparedRecord(at, None, original), copy))

    def _replayed_from(self, source_offset: int) -> int | None:
        """Returns where the replayed range of the ledger begins that has this source offset."""
        at = bisect_right(self._replayed, source_offset, key=itemgetter(0)) - 1
        return self._replayed[at][0] if at >= 0 and source_offset < self._replayed[at][1] else None

    def _is_of_others(self, record: ConsumerRecord) -> bool:
        """Returns whether the record, which is not in the map, is no error."""
        producer, behind = self._copiers.get(record.producer_id), record.offset >= self.piece.owned_end
        if producer is None and self._flow.shared:
            return True
        if producer is not None and (producer.flow != self._flow.name or behind):
            return True
        # A client may have written it while the destination was writable.
        return (behind and not self.piece.alone) or any(
            low <= record.offset < end for low, end in self.piece.own
        )


class RunOffsetTranslator:
    """Translates ascending offsets to the other side's offsets, by the runs."""

    def __init__(self, runs: Sequence[tuple[int, int, int]]) -> None:
        self._runs = runs
        self._at = 0

    def other(self, offset: int) -> int | None:
        while self._at < len(self._runs) and offset >= self._runs[self._at][0] + self._runs[self._at][2]:
            self._at += 1
        if self._at == len(self._runs) or offset < self._runs[self._at][0]:
            return None
        begin, other, _ = self._runs[self._at]
        return other + offset - begin
