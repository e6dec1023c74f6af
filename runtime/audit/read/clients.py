"""Reads the producers and consumers of a cluster's topics: `repl clients CLUSTER`."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping

from msgspec import Struct, field

from runtime.audit.ledger import open_cluster, producers_at
from runtime.audit.status.facts import rate, sum_known
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.records.ledger import UnreadableRecord
from runtime.contract.records.provenance import FlowProducer
from runtime.contract.results.records import (
    ClusterClients,
    ConsumerGroup,
    ConsumerPosition,
    GroupMember,
    TopicClients,
    TopicProducer,
)
from runtime.contract.spec.naming import TopicPartition
from runtime.contract.spec.route import is_reserved
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode, WireError
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.groups import (
    DescribeConsumerGroupsRequest,
    DescribeGroupsRequest,
    GroupState,
    ListedGroup,
)
from runtime.kafka.protocol.offsets import LATEST
from runtime.kafka.protocol.transactions import (
    ActiveProducer,
    CoordinatorKind,
    Producers,
)
from runtime.kafka.queries import (
    Listed,
    active_producers,
    committed_by,
    known_offsets,
    list_groups,
    transactional_ids,
)
from runtime.kafka.timing import now_ms

_GROUPS_PER_REQUEST = 100


async def read_groups(reach: ClusterEndpoint, within_s: float) -> tuple[dict[str, str], list[str]]:
    """Returns the groups of a cluster with Kafka's state of each, and which brokers did not list theirs.

    Raises AuditFailure.
    """
    async with open_cluster(reach, within_s) as cluster:
        listed = await list_groups(cluster, within_s)
        return {name: group.state for name, group in sorted(listed.groups.items())}, _unlisted(listed)


def _unlisted(listed: Listed) -> list[str]:
    return [f"the groups of broker {node} are not known: {why}" for node, why in listed.missing.items()]


async def describe_groups(
    cluster: KafkaCluster, groups: Mapping[str, ListedGroup], within_s: float
) -> tuple[dict[str, GroupState], dict[str, str]]:
    """Describes these groups, and says of which it could not, and why."""
    described: dict[str, GroupState] = {}
    failed: dict[str, str] = {}
    requests: dict[tuple[int, bool], list[str]] = {}
    for name, node in (await cluster.coordinators(CoordinatorKind.GROUP, groups)).items():
        if isinstance(node, BrokerError):
            failed[name] = str(node)
        else:
            requests.setdefault((node, groups[name].kind == "consumer"), []).append(name)

    async def describe(node: int, is_consumer: bool, some: list[str]) -> None:
        request = DescribeConsumerGroupsRequest(some) if is_consumer else DescribeGroupsRequest(some)
        try:
            answers = await cluster.call(node, request, within=within_s)
        except WireError as failure:
            failed.update(dict.fromkeys(some, str(failure)))
            return
        for name in some:
            state = answers.get(name, ErrorCode.UNKNOWN_SERVER_ERROR)
            if isinstance(state, ErrorCode):
                failed[name] = state.name
            else:
                described[name] = state

    parts = [
        describe(node, is_consumer, names[start : start + _GROUPS_PER_REQUEST])
        for (node, is_consumer), names in requests.items()
        for start in range(0, len(names), _GROUPS_PER_REQUEST)
    ]
    await asyncio.gather(*parts)
    return described, failed


class ClientFacts(Struct, frozen=True):
    """Holds the facts about a cluster's clients.

    `offsets` are the committed offsets of groups, `before` the same at an earlier inspection. `owners`: the
    flow of a producer id that is the product's own.
    """

    topics: Mapping[str, int]
    ends: Mapping[TopicPartition, int]
    groups: Mapping[str, GroupState]
    offsets: Mapping[str, Mapping[TopicPartition, int]]
    before: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    elapsed_ms: int = 0
    producers: Mapping[TopicPartition, Producers] = field(default_factory=dict)
    transactional_ids: Mapping[int, str] = field(default_factory=dict)
    owners: Mapping[int, str] = field(default_factory=dict)

    def clients(self) -> list[TopicClients]:
        """Returns every topic with its producers and consumers."""
        readers: defaultdict[str, set[str]] = defaultdict(set)
        for group, offsets in self.offsets.items():
            for at in offsets:
                readers[at.topic].add(group)
        for group, described in self.groups.items():
            for member in described.members:
                for topic in member.assigned:
                    readers[topic].add(group)
        return [
            TopicClients(
                topic=topic,
                partitions=count,
                producers=self._producers(topic),
                consumers=[self._consumer(group, topic) for group in sorted(readers.get(topic, ()))],
            )
            for topic, count in sorted(self.topics.items())
        ]

    def _consumer(self, group: str, topic: str) -> ConsumerGroup:
        described = self.groups.get(group, GroupState("Unknown", ()))
        members = [
            GroupMember(
                client_id=member.client_id,
                host=member.host.removeprefix("/"),
                member_id=member.member_id,
                partitions=sorted(member.assigned[topic]),
            )
            for member in described.members
            if topic in member.assigned
        ]
        numbers = {at.partition for at in self.offsets.get(group, {}) if at.topic == topic}
        numbers.update(number for member in members for number in member.partitions)
        partitions = []
        for at in (TopicPartition(topic, number) for number in sorted(numbers)):
            offset, end = self.offsets.get(group, {}).get(at), self.ends.get(at)
            before = self.before.get(group, {}).get(at)
            partitions.append(
                ConsumerPosition(
                    partition=at.partition,
                    offset=offset,
                    end=end,
                    lag=max(end - offset, 0) if end is not None and offset is not None else None,
                    records_per_s=rate(offset, before, self.elapsed_ms) if offset is not None else None,
                )
            )
        return ConsumerGroup(
            group=group,
            state=described.state,
            members=sorted(members, key=lambda member: (member.client_id, member.member_id)),
            lag=sum_known(partition.lag for partition in partitions),
            records_per_s=sum_known(partition.records_per_s for partition in partitions),
            partitions=partitions,
        )

    def _producers(self, topic: str) -> list[TopicProducer]:
        """Returns the producers of a topic, the one with the newest record first."""
        by_id: defaultdict[int, dict[int, ActiveProducer]] = defaultdict(dict)
        for at in (TopicPartition(topic, number) for number in range(self.topics[topic])):
            for producer in self.producers.get(at, ()):
                by_id[producer.producer_id][at.partition] = producer
        producers = []
        for producer_id, partitions in by_id.items():
            latest = max(partition.last_timestamp for partition in partitions.values())
            producers.append(
                TopicProducer(
                    producer_id=producer_id,
                    epoch=max(partition.epoch for partition in partitions.values()),
                    transactional_id=self.transactional_ids.get(producer_id),
                    flow=self.owners.get(producer_id),
                    last_timestamp_ms=latest if latest >= 0 else None,
                    partitions=sorted(partitions),
                    open_since={
                        number: partition.transaction_start
                        for number, partition in sorted(partitions.items())
                        if partition.transaction_start >= 0
                    },
                )
            )
        return sorted(producers, key=lambda made: (-(made.last_timestamp_ms or 0), made.producer_id))


Offsets = dict[str, dict[TopicPartition, int]]


async def read_clients(
    reach: ClusterEndpoint, topic: str | None, over_s: float, within_s: float
) -> ClusterClients:
    """Reads the clients of all topics, or of one.

    Rates need two inspections, `over_s` apart. Raises AuditFailure.
    """
    async with open_cluster(reach, within_s) as cluster:
        notes: list[str] = []
        topics = {
            name: len(metadata.partitions)
            for name, metadata in (await cluster.all_topics()).items()
            if not is_reserved(name) and topic in (None, name)
        }
        listed = await list_groups(cluster)
        notes += _unlisted(listed)
        began = time.monotonic()
        before = await _offsets(cluster, listed.groups, notes)
        elsewhere = asyncio.gather(
            describe_groups(cluster, listed.groups, within_s),
            _active_producers(cluster, topics, notes, within_s),
            transactional_ids(cluster),
        )
        (groups, failed), producers, (ids, unread) = await elsewhere
        owners: Mapping[int, FlowProducer] = {}
        try:
            owners = await producers_at(cluster)
        except (WireError, UnreadableRecord) as error:
            notes.append(f"which producers are flows is not known: {error}")
        notes += [
            f"the transactional ids of broker {node} are not known: {why}" for node, why in unread.items()
        ]
        notes += [f"the members of group {name} are not known: {why}" for name, why in failed.items()]
        offsets, elapsed_ms = before, 0
        if over_s:
            await asyncio.sleep(max(over_s - (time.monotonic() - began), 0))
            offsets = await _offsets(cluster, listed.groups, [])
            elapsed_ms = round((time.monotonic() - began) * 1000)
        facts = ClientFacts(
            topics=topics,
            # A read_committed reader can read up to the last stable offsets.
            ends=await known_offsets(cluster, _places(topics), LATEST, Isolation.READ_COMMITTED, within_s),
            groups=groups,
            offsets=offsets,
            before=before if over_s else {},
            elapsed_ms=elapsed_ms,
            producers=producers,
            transactional_ids=ids,
            owners={producer_id: owner.flow for producer_id, owner in owners.items()},
        )
        return ClusterClients(
            cluster=reach.cluster,
            cluster_id=cluster.cluster_id,
            at_ms=now_ms(),
            over_ms=elapsed_ms,
            topics=facts.clients(),
            notes=notes,
        )


def _places(topics: Mapping[str, int]) -> list[TopicPartition]:
    return [TopicPartition(name, number) for name, count in topics.items() for number in range(count)]


async def _offsets(cluster: KafkaCluster, groups: Mapping[str, object], notes: list[str]) -> Offsets:
    read = await committed_by(cluster, groups)
    notes += [f"the offsets of group {name} are not known: {why}" for name, why in read.failed.items()]
    return {
        group: {at: offset.offset for at, offset in committed.items()}
        for group, committed in read.offsets.items()
    }


async def _active_producers(
    cluster: KafkaCluster, topics: Mapping[str, int], notes: list[str], within_s: float
) -> dict[TopicPartition, Producers]:
    places = _places(topics)
    if not places:
        return {}
    answers = await active_producers(cluster, places, within_s)
    refused = {answer.name for answer in answers.values() if isinstance(answer, ErrorCode)}
    notes += [f"some producers are not known: {name}" for name in sorted(refused)]
    return {at: answer for at, answer in answers.items() if not isinstance(answer, ErrorCode)}
