"""Reads the logs of both sides: topic ids, starts, ends, and whether the topics are compacted."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from runtime.audit.ledger import AuditFailure, UnexpectedClusterId, as_audit_failure
from runtime.contract.client import settings as client
from runtime.contract.client.redaction import redacted
from runtime.contract.client.secrets import ClientSecrets
from runtime.contract.spec.jobspec import ClusterSpec
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.confluent import admin_client
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.offsets import EARLIEST, LATEST, ListedOffset, TopicPartition
from runtime.kafka.queries.partitions import list_offsets

_CONFIGS_HINT = "its brokers must answer, and its principal needs DESCRIBE_CONFIGS (docs/operations.md)"
_CONFIGS_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class PartitionLogs:
    """Holds the facts about one cluster's logs; a partition that does not answer is not in it.

    `ends` are the offsets up to which a read_committed reader can read.
    """

    ids: Mapping[str, bytes]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    compacted: frozenset[str]


@asynccontextmanager
async def open_spec(spec: ClusterSpec, name: str) -> AsyncIterator[KafkaCluster]:
    """Opens the cluster of the spec and refuses any other.

    Raises AuditFailure, also for errors inside the block.
    """
    with as_audit_failure(name):
        secrets = ClientSecrets(os.environ)
        settings = secrets.resolve(spec.bootstrap, spec.client)
        wire = client.wire_settings(spec.bootstrap, settings, secrets.token_command(name))
        async with await KafkaCluster.open(wire) as cluster:
            if spec.id is not None and cluster.cluster_id != spec.id:
                raise UnexpectedClusterId(name, cluster.cluster_id, spec.id)
            yield cluster


async def logs_of(
    cluster: KafkaCluster, name: str, spec: ClusterSpec, places: Collection[TopicPartition], within_s: float
) -> PartitionLogs:
    """Reads the logs of the given partitions. Raises WireError."""
    names = {at.topic for at in places}
    topics = await cluster.topics(names, fresh=True)
    existing = [at for at in places if not topics[at.topic].error]
    starts, ends, compacted = await asyncio.gather(
        list_offsets(cluster, dict.fromkeys(existing, EARLIEST), within=within_s),
        list_offsets(cluster, dict.fromkeys(existing, LATEST), Isolation.READ_COMMITTED, within_s),
        asyncio.to_thread(_compacted, spec, name, sorted({at.topic for at in existing})),
    )
    return PartitionLogs(
        ids={name: topic.id for name, topic in topics.items() if not topic.error},
        starts={at: one.offset for at, one in starts.items() if isinstance(one, ListedOffset)},
        ends={at: one.offset for at, one in ends.items() if isinstance(one, ListedOffset)},
        compacted=compacted,
    )


def _admin(spec: ClusterSpec, name: str) -> AdminClient:
    secrets = ClientSecrets(os.environ)
    settings = secrets.resolve(spec.bootstrap, spec.client)
    return admin_client(spec.bootstrap, settings, secrets.token_command(name))


def settings_of(spec: ClusterSpec, name: str, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    """Returns the effective settings of existing topics, by name. Raises AuditFailure."""
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    if not resources:
        return {}
    with as_audit_failure(name):
        admin = _admin(spec, name)
    found = {}
    for resource, future in admin.describe_configs(resources, request_timeout=_CONFIGS_TIMEOUT_S).items():
        try:
            entries = future.result(_CONFIGS_TIMEOUT_S)
        except KafkaException as error:
            why = f"the settings of {resource.name} can't be read: {redacted(error.args[0].str())}"
            raise AuditFailure(name, why, _CONFIGS_HINT) from error
        found[str(resource.name)] = {key: str(entry.value) for key, entry in entries.items()}
    return found


def _compacted(spec: ClusterSpec, name: str, topics: Iterable[str]) -> frozenset[str]:
    settings = settings_of(spec, name, topics)
    return frozenset(topic for topic, one in settings.items() if "compact" in one["cleanup.policy"])
