"""Checks periodically for topics recreated while idle, and for transactions that block readers."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import time
from collections.abc import Callable, Collection, Mapping

from runtime.contract.client.settings import SecurityProtocol
from runtime.contract.records.job_status import OpenTransaction
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.naming import TopicPartition, is_other_topic
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode, WireError
from runtime.kafka.protocol.metadata import TopicMetadata
from runtime.kafka.protocol.transactions import (
    ActiveProducer,
    CoordinatorKind,
    DescribeTransactionsRequest,
    TransactionState,
)
from runtime.kafka.queries import active_producers, coordinated, transactional_ids
from runtime.kafka.timing import now_ms, until_next
from runtime.slot.health.supervisor import PartitionSupervisor
from runtime.slot.partition import PartitionCopy

_WITHIN_S = 5.0
_MAX_ID_LENGTH = 200
_PROBE = "repl.describe.probe"  # No producer uses this id; describing it shows whether the right is granted.
_MISSING_RIGHT = (
    "the right DESCRIBE on TRANSACTIONAL_ID * is missing at the source:"
    " kafka-acls.sh --add --operation Describe --transactional-id '*'"
)
_FORGOTTEN = "no coordinator has it open any more, so only the command ends it"


async def open_transactions(
    cluster: KafkaCluster, places: Collection[TopicPartition]
) -> dict[TopicPartition, OpenTransaction | str]:
    """Returns the oldest open transaction of each partition, or the reason why none can be named.

    Raises WireError where the leaders do not answer.
    """
    transactions: dict[TopicPartition, OpenTransaction | str] = {}
    oldest: dict[TopicPartition, ActiveProducer] = {}
    for place, answer in (await active_producers(cluster, list(places))).items():
        if isinstance(answer, ErrorCode):
            transactions[place] = f"its producers can't be listed: {answer.name}"
            continue
        held = [producer for producer in answer if producer.transaction_start >= 0]
        if held:
            oldest[place] = min(held, key=lambda producer: producer.transaction_start)
        else:
            transactions[place] = "its leader names no producer with an open transaction"
    ids, failed = await transactional_ids(
        cluster, {producer.producer_id for producer in oldest.values()}, _WITHIN_S
    )
    states = {
        transactional_id: await _state(cluster, transactional_id)
        for transactional_id in sorted(set(ids.values()))
    }
    unnamed = ""
    if failed:
        why = "; ".join(f"broker {node}: {why}" for node, why in failed.items())
        unnamed = f"not every coordinator could be asked: {why}"
    elif any(producer.producer_id not in ids for producer in oldest.values()):
        # Either the right to describe it is missing, or no coordinator knows the producer any more.
        probed = await _state(cluster, _PROBE)
        unnamed = _FORGOTTEN if isinstance(probed, TransactionState) else probed
    for place, producer in oldest.items():
        name = ids.get(producer.producer_id)
        state = states[name] if name is not None else unnamed
        transactions[place] = _describe(cluster, place, producer, name, state)
    return transactions


def _describe(
    cluster: KafkaCluster,
    place: TopicPartition,
    producer: ActiveProducer,
    name: str | None,
    state: TransactionState | str,
) -> OpenTransaction:
    """Returns the description of an open transaction; `unknown` holds the reason for missing details."""
    described = state if isinstance(state, TransactionState) else None
    unknown = state if isinstance(state, str) else ""
    if described is not None and (
        described.producer_id != producer.producer_id or place not in described.partitions
    ):
        unknown = _FORGOTTEN
    return OpenTransaction(
        producer_id=producer.producer_id,
        start_offset=producer.transaction_start,
        transactional_id=(name or "")[:_MAX_ID_LENGTH],
        coordinator_state=described.state if described is not None else "",
        started_ms=described.start_ms if described is not None and not unknown else 0,
        timeout_ms=described.timeout_ms if described is not None else 0,
        abort_command=abort_command(cluster, place, producer.transaction_start),
        unknown=unknown,
    )


def abort_command(cluster: KafkaCluster, place: TopicPartition, start_offset: int) -> str:
    """Returns the command line of Kafka's own tool, its arguments in the required order."""
    settings = cluster.settings
    words = ["kafka-transactions.sh"]
    words += ["--bootstrap-server", ",".join(f"{host}:{port}" for host, port in settings.bootstrap)]
    if settings.security is not SecurityProtocol.PLAINTEXT:
        words += ["--command-config", "client.properties"]
    words += ["abort", "--topic", place.topic, "--partition", str(place.partition)]
    return shlex.join([*words, "--start-offset", str(start_offset)])


def explain(transaction: OpenTransaction, at_ms: int) -> str:
    """Returns the text for a partition's state, at a time.

    A transactional id is chosen by the producer, so it is shown escaped.
    """
    owner = f"producer id {transaction.producer_id}"
    if transaction.transactional_id:
        owner = f"transactional id {transaction.transactional_id!a}, {owner}"
    opened = f"open since offset {transaction.start_offset}"
    if transaction.started_ms > 0:
        opened += f", for {max(at_ms - transaction.started_ms, 0) // 1000} s"
    parts = [f"a transaction at the source holds its readers back: {owner}, {opened}"]
    if transaction.coordinator_state:
        parts.append(
            f"its coordinator says {transaction.coordinator_state},"
            f" timeout {transaction.timeout_ms / 1000:g} s"
        )
    if transaction.unknown:
        parts.append(transaction.unknown)
    parts.append(f"to abort it: {transaction.abort_command}")
    return "; ".join(parts)


async def _state(cluster: KafkaCluster, transactional_id: str) -> TransactionState | str:
    """Returns the state of a transaction from its coordinator, or the reason why it is not known."""
    try:
        states = await coordinated(
            cluster,
            CoordinatorKind.TRANSACTION,
            transactional_id,
            DescribeTransactionsRequest([transactional_id]),
            within=_WITHIN_S,
            resend=True,
        )
    except BrokerError as error:
        return _why_not(error.code)
    except WireError as error:
        return f"its coordinator can't be asked: {error}"
    state = states.get(transactional_id, ErrorCode.UNKNOWN_SERVER_ERROR)
    return _why_not(state) if isinstance(state, ErrorCode) else state


def _why_not(code: ErrorCode) -> str:
    match code:
        case ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return _MISSING_RIGHT
        case ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return _FORGOTTEN
        case _:
            return f"its coordinator can't be asked: {code.name}"


EVERY_S = 5.0
_MAX_AGE_S = EVERY_S / 2
_BLOCKED_AFTER_S = 10.0


class TopicWatch:
    """A watch checks the partitions of a flow every 5 s: their topic ids, and whether they are blocked.

    All watches of a slot check at the same moment, and share a request to each cluster.
    """

    def __init__(
        self,
        source: KafkaCluster,
        destination: KafkaCluster,
        copies: Mapping[PartitionKey, PartitionCopy],
        supervisor: PartitionSupervisor,
        leader_changed: Callable[[PartitionCopy], None],
    ) -> None:
        self._source = source
        self._destination = destination
        self._copies = copies
        self._supervisor = supervisor
        self._leader_changed = leader_changed
        self._waiting: dict[PartitionCopy, float] = {}
        self._compared: tuple[object, ...] = ()  # the partitions, and the metadata of their topics
        self._unsettled: list[PartitionCopy] = []

    async def run(self) -> None:
        """Checks until it is cancelled.

        An error of a cluster is ignored here, because the copy loop reports it.
        """
        while True:
            await asyncio.sleep(until_next(EVERY_S))
            with contextlib.suppress(WireError):
                await self._compare_metadata()
                await self._find_blocked()

    async def _compare_metadata(self) -> None:
        """Inspects the partitions of topics whose ids differ from the ledger's at one side.

        A partition with a new leader at the source is inspected, too: the old one may not answer, and the
        fetch waits a minute for it. So is an idle partition with a new leader at the destination: without a
        leader, it may have missed a marker. While the metadata of both sides stay the same, only partitions
        are compared that were busy at the last check, or differed then.
        """
        copies = [copy for copy in self._copies.values() if copy.fetchable]
        source_topics = await self._source.recent_topics({copy.key.topic for copy in copies}, _MAX_AGE_S)
        destination_topics = await self._destination.recent_topics(
            {copy.at.topic for copy in copies}, _MAX_AGE_S
        )
        compared = copies, source_topics, destination_topics
        due = self._unsettled if compared == self._compared else copies
        self._compared, self._unsettled = compared, []
        for copy in due:
            if not copy.fetchable:  # It stopped during the request.
                continue
            topic, mirror = source_topics.get(copy.key.topic), destination_topics.get(copy.at.topic)
            progress = copy.progress
            changed = (
                topic is not None and not topic.error and is_other_topic(progress.source_topic_id, topic.id)
            )
            if mirror is not None:
                gone = mirror.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                other = is_other_topic(progress.destination_topic_id, mirror.id)
                changed |= gone or (not mirror.error and other)
            if changed:
                self._unsettled.append(copy)
                self._supervisor.retry(copy, "a topic's id changed")
            elif _has_new_leader(topic, copy.key.partition, copy.fetched_epoch):
                self._unsettled.append(copy)
                self._supervisor.retry(copy, f"{copy.key.at} has a new leader at the source")
            elif copy.queue or copy.in_transaction:
                self._unsettled.append(copy)
            elif _has_new_leader(mirror, copy.at.partition, copy.inspected_epoch):
                self._unsettled.append(copy)
                self._leader_changed(copy)

    async def _find_blocked(self) -> None:
        """Names the transaction that blocks a partition which waits at its last stable offset for 10 s."""
        now = time.monotonic()
        waiting = [copy for copy in self._copies.values() if _waits_at_stable_offset(copy)]
        self._waiting = {copy: self._waiting.get(copy, now) for copy in waiting}
        blocked = [copy for copy, since in self._waiting.items() if now - since >= _BLOCKED_AFTER_S]
        if not blocked:
            return
        places = {copy: copy.key.at for copy in blocked}
        transactions = await open_transactions(self._source, set(places.values()))
        for copy, place in places.items():
            if not copy.fetchable:  # It stopped during the request; its status has the reason.
                continue
            match transactions[place]:
                case OpenTransaction() as transaction:
                    copy.block(transaction, explain(transaction, now_ms()))
                case str(why):
                    copy.block(None, f"a transaction at the source holds its readers back; {why}")


def _has_new_leader(topic: TopicMetadata | None, partition: int, epoch: int) -> bool:
    """Returns whether the partition has a leader of a newer epoch than this one, where this one is known."""
    leader = topic.partitions.get(partition) if topic is not None else None
    return leader is not None and leader.leader >= 0 and leader.leader_epoch > epoch >= 0


def _waits_at_stable_offset(copy: PartitionCopy) -> bool:
    """Returns whether the partition has read all that an open transaction at the source lets it read."""
    ends = copy.source
    return (
        copy.fetchable
        and copy.cursor.offset >= ends.stable_end >= 0
        and ends.stable_end < ends.high_watermark
    )
