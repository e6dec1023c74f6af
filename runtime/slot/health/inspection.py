"""Inspects both sides of partitions and compares them with the ledger (R4).

An inspection reads topic ids, log starts, log ends and leader epochs. Pure functions judge them, and compute
accepted losses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from msgspec import Struct
from msgspec.structs import replace

from runtime.batch import Batch, walk
from runtime.contract.records.advance import give_up, start_over
from runtime.contract.records.job_status import Finding
from runtime.contract.records.job_status import PartitionState as State
from runtime.contract.records.ledger import BatchIdentity, Progress
from runtime.contract.spec.naming import TopicPartition, is_from_kafka, is_other_topic
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode, WireError
from runtime.kafka.fetch import fetch_once
from runtime.kafka.leaders import UNANSWERED
from runtime.kafka.protocol.fetch import EpochEnd, Isolation
from runtime.kafka.protocol.metadata import TopicMetadata
from runtime.kafka.protocol.offsets import EARLIEST, LATEST, ListedOffset
from runtime.kafka.protocol.transactions import ActiveProducer
from runtime.kafka.queries import active_producers, epoch_ends, list_offsets, log_ends
from runtime.slot.errors import LEADER_CHANGED
from runtime.slot.partition import PartitionCopy


class SourceFacts(Struct, frozen=True):
    """The inspected state of a partition at the source.

    `diverged_at` is the offset from which the source's log differs from what was read: an older leader epoch
    ends before the position. `recreated` is told by the leader epoch, in a cluster without topic ids.
    """

    topic_id: bytes
    log_start: int
    log_end: int
    diverged_at: int | None = None
    recreated: bool = False


class DestinationFacts(Struct, frozen=True):
    """The inspected state of a partition at the destination.

    `rewritten` means that another batch is stored at the offset of the flow's last batch: the log was
    truncated below it and grew again. `leader_epoch` is the epoch of the leader that answered, or an older
    one. `open_transactions` hold back readers of committed records.
    """

    topic_id: bytes
    log_end: int
    rewritten: bool = False
    leader_epoch: int = -1
    recreated: bool = False
    open_transactions: tuple[ActiveProducer, ...] = ()


def judge_source(progress: Progress, facts: SourceFacts) -> Finding | None:
    """Returns why the source contradicts the ledger's progress, or None."""
    position = progress.position
    if facts.recreated:
        return Finding(
            State.RECREATED,
            "the source's topic was recreated: its leader epoch and its end are not those of the one copied",
        )
    if is_other_topic(progress.source_topic_id, facts.topic_id):
        return Finding(
            State.RECREATED,
            f"the source's topic was recreated: its id is {facts.topic_id.hex()}, the flow copied"
            f" {progress.source_topic_id.hex()}",
        )
    if facts.log_start > position:
        lost = facts.log_start - position
        return Finding(
            State.DATA_LOSS,
            f"retention at the source passed the position: {lost} offsets, from {position} to"
            f" {facts.log_start}, are gone and were not copied",
        )
    if facts.diverged_at is not None:
        return Finding(
            State.DIVERGED,
            f"a leader change truncated the source to {facts.diverged_at}, the flow copied up to {position}",
        )
    if facts.log_end < position:
        return Finding(
            State.DIVERGED,
            f"the source ends at {facts.log_end}, the flow copied up to {position}: it was truncated",
        )
    return None


def judge_destination(progress: Progress, facts: DestinationFacts) -> Finding | None:
    """Returns why the destination contradicts the ledger's progress, or None."""
    end = progress.destination_end
    if facts.recreated:
        return Finding(
            State.RECREATED,
            "the destination's topic was recreated: its leader epoch and its end are not those of the one"
            " written",
        )
    if is_other_topic(progress.destination_topic_id, facts.topic_id):
        return Finding(
            State.RECREATED,
            f"the destination's topic was recreated: its id is {facts.topic_id.hex()}, the flow wrote to"
            f" {progress.destination_topic_id.hex()}",
        )
    if facts.log_end < end:
        return Finding(
            State.DIVERGED,
            f"the destination's partition ends at {facts.log_end}, the ledger says {end}: it was truncated",
        )
    if facts.rewritten:
        return Finding(
            State.DIVERGED,
            f"a leader change truncated the destination below {end}, where the ledger says it ended, and"
            " other records were written there since",
        )
    return None


class MissingMarker(Struct, frozen=True):
    """A transaction that is decided, and whose marker the destination's partition lacks.

    `commit` is the decision, None where the ledger does not tell.
    """

    producer_id: int
    start: int
    commit: bool | None

    def __str__(self) -> str:
        outcome = {True: "committed", False: "aborted", None: "of unknown outcome"}[self.commit]
        return (
            f"the destination's brokers wrote no marker for a transaction that is {outcome}: producer id"
            f" {self.producer_id}, open since offset {self.start}"
        )


def missing_markers(
    progress: Progress, facts: DestinationFacts, producer_ids: Collection[int]
) -> list[MissingMarker]:
    """Returns the transactions of the flow that a partition in no transaction still shows as open.

    Kafka 4.3 and 4.4 leave the markers of a partition without a leader out (KAFKA-20734). A transaction was
    aborted if it begins behind all committed records, and committed if it holds the last committed batch:
    that one may be of a producer id that the flow's lanes have no more.
    """
    markers = []
    for producer in facts.open_transactions:
        number, start = producer.producer_id, producer.transaction_start
        behind = start >= progress.destination_end
        if not behind and progress.mark is not None and progress.mark.producer_id == number:
            markers.append(MissingMarker(number, start, commit=True))
        elif number in producer_ids:
            markers.append(MissingMarker(number, start, commit=False if behind else None))
    return markers


def accept_loss(
    progress: Progress,
    source: SourceFacts,
    destination: DestinationFacts,
    *,
    destination_topic: str,
    generation: int,
    now_ms: int,
) -> Progress:
    """Returns the progress to commit when the topology or an operator accepts the loss.

    No record that still exists is skipped: copying continues from the source's log start, from the offset to
    which it was truncated, or from the beginning of a recreated topic. A destination that was recreated or
    truncated receives the records from this position on. `destination_topic` has another name than before
    where the flow's rename was changed.
    """
    recreated = source.recreated or is_other_topic(progress.source_topic_id, source.topic_id)
    restarted = recreated or judge_destination(progress, destination) is not None
    position = progress.position
    if recreated:
        position = source.log_start
    elif source.diverged_at is not None or source.log_end < position:
        parted = source.log_end if source.diverged_at is None else source.diverged_at
        position = min(position, source.log_end, parted)
        restarted = True
    skipped = replace(progress, position=position) if position < progress.position else progress
    if source.log_start > position:
        skipped = give_up(skipped, source.log_start, "lost", generation=generation, now_ms=now_ms)
        position = source.log_start
    if not restarted:
        return skipped
    moved = replace(
        skipped,
        generation=generation,
        source_topic_id=source.topic_id,
        destination_topic=destination_topic,
        destination_topic_id=destination.topic_id,
        written_at=now_ms,
    )
    return start_over(moved, position, destination.log_end)


_WITHIN_S = 10.0


class MissingPartition(Struct, frozen=True):
    """A partition that could not be inspected: it does not exist, or no leader answers for it now.

    The code says which.
    """

    side: str
    code: ErrorCode

    @property
    def gone(self) -> bool:
        """Whether the topic or partition does not exist."""
        return self.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


async def inspect(
    source: KafkaCluster, destination: KafkaCluster, copies: Iterable[PartitionCopy]
) -> dict[PartitionCopy, tuple[SourceFacts | MissingPartition, DestinationFacts | MissingPartition]]:
    """Inspects partitions at both sides, with one request of a kind to each leader.

    Returns the facts of the source and those of the destination. Raises WireError where a cluster does not
    answer at all.
    """
    listed = list(copies)
    source_facts, destination_facts = await asyncio.gather(
        _source(source, listed), _destination(destination, listed)
    )
    return {copy: (source_facts[copy], destination_facts[copy]) for copy in listed}


async def _source(
    cluster: KafkaCluster, copies: list[PartitionCopy]
) -> dict[PartitionCopy, SourceFacts | MissingPartition]:
    """Returns the facts of each partition at the source."""
    at = {copy: copy.key.at for copy in copies}
    topics = await cluster.topics({place.topic for place in at.values()}, fresh=True)
    copied_epochs = {
        at[copy]: copy.progress.source_epoch for copy in copies if copy.progress.source_epoch >= 0
    }
    starts, ends, epochs = await asyncio.gather(
        list_offsets(cluster, dict.fromkeys(at.values(), EARLIEST), within=_WITHIN_S),
        log_ends(cluster, {place: copy.progress.position for copy, place in at.items()}, within=_WITHIN_S),
        epoch_ends(cluster, copied_epochs, within=_WITHIN_S),
    )
    facts: dict[PartitionCopy, SourceFacts | MissingPartition] = {}
    for copy, place in at.items():
        start, end, progress = starts[place], ends[place], copy.progress
        if not isinstance(start, ListedOffset):
            facts[copy] = MissingPartition("source", start)
            continue
        if not isinstance(end, ListedOffset):
            facts[copy] = MissingPartition("source", end)
            continue
        if stale := _stale_metadata(
            topics[place.topic], place, progress.source_topic_id, progress.source_epoch
        ):
            facts[copy] = MissingPartition("source", stale)
            continue
        if (unanswered := epochs.get(place)) in UNANSWERED:
            facts[copy] = MissingPartition("source", ErrorCode(unanswered))
            continue
        diverged = _diverged_at(copy, epochs.get(place))
        topic = topics[place.topic]
        another = _recreated(topic, place, progress.source_epoch, end.offset < progress.position)
        facts[copy] = SourceFacts(topic.id, start.offset, end.offset, diverged, recreated=another)
    return facts


def _diverged_at(copy: PartitionCopy, answer: EpochEnd | ErrorCode | None) -> int | None:
    """Returns the offset from which the source's log differs from what was read, or None."""
    progress = copy.progress
    if not isinstance(answer, EpochEnd) or answer.end_offset < 0:
        return None
    if answer.epoch < progress.source_epoch or answer.end_offset < progress.position:
        return min(answer.end_offset, progress.position)
    return None


async def _destination(
    cluster: KafkaCluster, copies: list[PartitionCopy]
) -> dict[PartitionCopy, DestinationFacts | MissingPartition]:
    """Returns the facts of each partition at the destination."""
    topics = await cluster.topics({copy.at.topic for copy in copies}, fresh=True)
    copied_epochs = {
        copy.at: copy.progress.destination_epoch for copy in copies if copy.progress.destination_epoch >= 0
    }
    latest = dict.fromkeys((copy.at for copy in copies), LATEST)
    ends, stable_ends, epochs = await asyncio.gather(
        log_ends(cluster, {copy.at: copy.progress.destination_end for copy in copies}, within=_WITHIN_S),
        list_offsets(cluster, latest, Isolation.READ_COMMITTED, within=_WITHIN_S),
        epoch_ends(cluster, copied_epochs, within=_WITHIN_S),
    )
    open_transactions = await _open_transactions(
        cluster, [at for at, end in ends.items() if _offset(stable_ends[at]) < _offset(end)]
    )
    facts: dict[PartitionCopy, DestinationFacts | MissingPartition] = {}
    for copy in copies:
        topic, end, progress = topics[copy.at.topic], ends[copy.at], copy.progress
        if not isinstance(end, ListedOffset):
            facts[copy] = MissingPartition("destination", end)
            continue
        if (unanswered := epochs.get(copy.at)) in UNANSWERED:
            facts[copy] = MissingPartition("destination", ErrorCode(unanswered))
            continue
        producers = open_transactions.get(copy.at, ())
        if isinstance(producers, ErrorCode):
            facts[copy] = MissingPartition("destination", producers)
            continue
        if stale := _stale_metadata(
            topic, copy.at, progress.destination_topic_id, progress.destination_epoch
        ):
            facts[copy] = MissingPartition("destination", stale)
            continue
        try:
            doubtful = _epoch_ends_early(copy, epochs.get(copy.at), end.offset)
            rewritten = doubtful and await _rewritten(cluster, copy, topic.id)
        except WireError as error:
            code = error.code if isinstance(error, BrokerError) else ErrorCode.NETWORK_EXCEPTION
            facts[copy] = MissingPartition("destination", code)
            continue
        led = topic.partitions[copy.at.partition].leader_epoch
        shorter = end.offset < progress.destination_end
        another = _recreated(topic, copy.at, progress.destination_epoch, shorter)
        facts[copy] = DestinationFacts(topic.id, end.offset, rewritten, led, another, producers)
    return facts


async def _open_transactions(
    cluster: KafkaCluster, partitions: list[TopicPartition]
) -> dict[TopicPartition, tuple[ActiveProducer, ...] | ErrorCode]:
    """Returns the open transactions of each partition, or an error that a later inspection may not meet.

    There are none where the brokers or the rights of the login do not show them.
    """
    if not partitions:
        return {}
    answers = await active_producers(cluster, partitions, within=_WITHIN_S)
    return {
        at: producers
        if isinstance(producers, ErrorCode)
        else tuple(producer for producer in producers if producer.transaction_start >= 0)
        for at, producers in answers.items()
        if not isinstance(producers, ErrorCode) or producers in (*LEADER_CHANGED, *UNANSWERED)
    }


def _offset(answer: ListedOffset | ErrorCode) -> int:
    return answer.offset if isinstance(answer, ListedOffset) else -1


def _stale_metadata(
    topic: TopicMetadata, at: TopicPartition, topic_id: bytes, epoch: int
) -> ErrorCode | None:
    """Returns an error code if the topic's metadata is outdated, else None.

    A broker whose metadata is behind does not know the topic yet, or names a leader of an epoch before
    `epoch`, which the ledger holds.
    """
    named = topic.partitions.get(at.partition)
    if topic.error or named is None:
        return ErrorCode.LEADER_NOT_AVAILABLE
    same = is_from_kafka(topic.id) and topic.id == topic_id
    older = same and named.leader_epoch < epoch
    return ErrorCode.UNKNOWN_LEADER_EPOCH if older else None


def _recreated(topic: TopicMetadata, at: TopicPartition, epoch: int, shorter: bool) -> bool:
    """Returns whether the topic was recreated, as far as a cluster without topic ids tells.

    Leader epochs never fall, and only a new leader truncates a log. A lower epoch, or a shorter log in the
    same epoch, is another topic's.
    """
    led = topic.partitions[at.partition].leader_epoch
    return not is_from_kafka(topic.id) and (led < epoch or (shorter and led == epoch))


def _epoch_ends_early(copy: PartitionCopy, answer: EpochEnd | ErrorCode | None, log_end: int) -> bool:
    """Returns whether the recorded leader epoch ends before the flow's last record.

    The log itself must be read then. The reason may only be metadata that was one epoch behind, because a
    produce response does not name the epoch.
    """
    end = copy.progress.destination_end
    return isinstance(answer, EpochEnd) and answer.end_offset < end <= log_end


async def _rewritten(cluster: KafkaCluster, copy: PartitionCopy, topic_id: bytes) -> bool:
    """Returns whether another batch is stored at the offset of the flow's last batch.

    A batch that is gone (compacted, expired) proves nothing: the result is False. Raises WireError.
    """
    mark, last = copy.progress.mark, copy.progress.destination_end - 1
    other = is_other_topic(copy.progress.destination_topic_id, topic_id)
    if mark is None or other or cluster.leader(*copy.at) is None:
        return False
    answer = await fetch_once(
        cluster,
        copy.at,
        last,
        1,
        "inspect",
        isolation=Isolation.READ_UNCOMMITTED,
        topic_id=topic_id,
        within=_WITHIN_S,
    )
    for batch in walk(answer.records, copy.at).sets:
        if isinstance(batch, Batch) and batch.base_offset <= last <= batch.last_offset:
            return mark != BatchIdentity(batch.producer_id, batch.producer_epoch, batch.base_sequence)
    return False
