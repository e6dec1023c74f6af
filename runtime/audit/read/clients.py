"""Reads the producers and consumers of a cluster's topics: `repl clients CLUSTER`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from runtime.audit.ledger import open_cluster, producers_at
from runtime.audit.read.clients_facts import ClientFacts, topic_views
from runtime.audit.read.clients_members import describe_groups
from runtime.audit.read.records import ReadRecordsRequest
from runtime.contract.records.ledger import UnreadableRecord
from runtime.contract.spec.route import is_reserved
from runtime.contract.views.records_view import ClientsView
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.offsets import LATEST, ListedOffset, TopicPartition
from runtime.kafka.protocol.transactions import ActiveProducer, ListTransactionsRequest
from runtime.kafka.queries.groups import committed_by, list_groups
from runtime.kafka.queries.partitions import active_producers, list_offsets

Offsets = dict[str, dict[TopicPartition, int]]


async def read_clients(
    asked: ReadRecordsRequest, topic: str | None, over_s: float, within_s: float
) -> ClientsView:
    """Reads the clients of all topics, or of one.

    Rates need two inspections, `over_s` apart. Raises AuditFailure.
    """
    async with open_cluster(asked.reach, within_s) as cluster:
        notes: list[str] = []
        topics = {
            name: len(known.partitions)
            for name, known in (await cluster.all_topics()).items()
            if not is_reserved(name) and topic in (None, name)
        }
        listed = await list_groups(cluster)
        notes += [f"the groups of broker {node} are not known: {why}" for node, why in listed.missing.items()]
        began = time.monotonic()
        before = await _offsets(cluster, listed.groups, notes)
        elsewhere = asyncio.gather(
            describe_groups(asked.reach, listed.groups, within_s),
            _producers(cluster, topics, notes, within_s),
            _transactional_ids(cluster, notes),
            _owners(cluster, notes),
        )
        groups, producers, transactional_ids, owners = await elsewhere
        notes += [f"the members of group {name} are not known: {why}" for name, why in groups.failed.items()]
        offsets, elapsed_ms = before, 0
        if over_s:
            await asyncio.sleep(max(over_s - (time.monotonic() - began), 0))
            offsets = await _offsets(cluster, listed.groups, [])
            elapsed_ms = round((time.monotonic() - began) * 1000)
        facts = ClientFacts(
            topics=topics,
            ends=await _ends(cluster, topics, within_s),
            groups=groups.found,
            offsets=offsets,
            before=before if over_s else {},
            elapsed_ms=elapsed_ms,
            producers=producers,
            transactional_ids=transactional_ids,
            owners=owners,
        )
        return ClientsView(
            cluster=asked.reach.name,
            cluster_id=cluster.cluster_id,
            at_ms=int(time.time() * 1000),
            over_ms=elapsed_ms,
            topics=topic_views(facts),
            notes=notes,
        )


def _places(topics: Mapping[str, int]) -> list[TopicPartition]:
    return [TopicPartition(name, number) for name, count in topics.items() for number in range(count)]


async def _offsets(cluster: KafkaCluster, groups: Mapping[str, object], notes: list[str]) -> Offsets:
    read = await committed_by(cluster, groups)
    notes += [f"the offsets of group {name} are not known: {why}" for name, why in read.failed.items()]
    return {
        group: {at: one.offset for at, one in committed.items()} for group, committed in read.offsets.items()
    }


async def _ends(
    cluster: KafkaCluster, topics: Mapping[str, int], within_s: float
) -> dict[TopicPartition, int]:
    """Returns the last stable offsets: a read_committed reader can read up to them."""
    places = dict.fromkeys(_places(topics), LATEST)
    if not places:
        return {}
    answers = await list_offsets(cluster, places, Isolation.READ_COMMITTED, within_s)
    return {at: one.offset for at, one in answers.items() if isinstance(one, ListedOffset)}


async def _producers(
    cluster: KafkaCluster, topics: Mapping[str, int], notes: list[str], within_s: float
) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
    places = _places(topics)
    if not places:
        return {}
    answers = await active_producers(cluster, places, within_s)
    refused = {one.name for one in answers.values() if isinstance(one, ErrorCode)}
    notes += [f"some producers are not known: {name}" for name in sorted(refused)]
    return {at: one for at, one in answers.items() if not isinstance(one, ErrorCode)}


async def _transactional_ids(cluster: KafkaCluster, notes: list[str]) -> dict[int, str]:
    """Returns the transactional ids by producer id, of all brokers."""
    found: dict[int, str] = {}
    for node in list(cluster.brokers):
        try:
            answer = await cluster.call(node, ListTransactionsRequest())
        except WireError as error:
            notes.append(f"the transactional ids of broker {node} are not known: {error}")
            continue
        found.update((one.producer_id, one.transactional_id) for one in answer.transactions)
    return found


async def _owners(cluster: KafkaCluster, notes: list[str]) -> dict[int, str]:
    try:
        return {one: producer.flow for one, producer in (await producers_at(cluster)).items()}
    except (WireError, UnreadableRecord) as error:
        notes.append(f"which producers are flows is not known: {error}")
        return {}
