"""What the logs of both sides hold: topic ids, starts, ends, and whether compaction takes records away."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from runtime.audit.ledger import AuditFailure, WrongCluster, telling
from runtime.contract import client
from runtime.contract.client_values import TokenCommand
from runtime.contract.jobspec import ClusterSpec
from runtime.copy.wire.asking import list_offsets
from runtime.copy.wire.cluster import Cluster
from runtime.copy.wire.protocol.fetch import Isolation
from runtime.copy.wire.protocol.offsets import EARLIEST, LATEST, ListedOffset, TopicPartition
from runtime.copy.wire.tokens import fetch_token

_CONFIGS_WANT = "its brokers must answer, and its principal needs DESCRIBE_CONFIGS (docs/operations.md)"
_CONFIGS_WITHIN_S = 30.0
_SILENT = logging.getLogger("repl.librdkafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


@dataclass(frozen=True, slots=True)
class Logs:
    """Of one cluster; a partition that does not answer is not in it. `ends`: what a reader of committed
    records may have.
    """

    ids: Mapping[str, bytes]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    compacted: frozenset[str]


def resolved(spec: ClusterSpec) -> dict[str, str]:
    """Secrets are looked up where it runs."""
    return client.resolve(spec.client, os.environ, lambda path: Path(path).read_text())


@asynccontextmanager
async def open_spec(spec: ClusterSpec, name: str) -> AsyncIterator[Cluster]:
    """The cluster that is meant and no other. Raises AuditFailure, for what goes wrong inside too."""
    with telling(name):
        settings = client.wire_settings(spec.bootstrap, resolved(spec))
        async with await Cluster.open(settings) as cluster:
            if spec.id is not None and cluster.cluster_id != spec.id:
                raise WrongCluster(name, cluster.cluster_id, spec.id)
            yield cluster


async def logs_of(
    cluster: Cluster, spec: ClusterSpec, places: Collection[TopicPartition], within_s: float
) -> Logs:
    """Raises WireError."""
    names = {at.topic for at in places}
    topics = await cluster.topics(names, fresh=True)
    there = [at for at in places if not topics[at.topic].error]
    starts, ends, compacted = await asyncio.gather(
        list_offsets(cluster, dict.fromkeys(there, EARLIEST), within=within_s),
        list_offsets(cluster, dict.fromkeys(there, LATEST), Isolation.READ_COMMITTED, within_s),
        asyncio.to_thread(_compacted, spec, sorted({at.topic for at in there})),
    )
    return Logs(
        ids={name: topic.id for name, topic in topics.items() if not topic.error},
        starts={at: one.offset for at, one in starts.items() if isinstance(one, ListedOffset)},
        ends={at: one.offset for at, one in ends.items() if isinstance(one, ListedOffset)},
        compacted=compacted,
    )


def _admin(spec: ClusterSpec) -> AdminClient:
    settings = resolved(spec)
    config: dict[str, Any] = {**client.confluent_config(spec.bootstrap, settings), "logger": _SILENT}
    command = settings.get(client.TOKEN_COMMAND)
    if command is not None:
        config["oauth_cb"] = lambda _: _token(command)
    admin = AdminClient(config)
    if command is not None:
        admin.poll(0)
    return admin


def _token(command: str) -> tuple[str, float]:
    """librdkafka asks for a token, and until when it holds."""
    token = fetch_token(TokenCommand(command))
    return token.text, time.time() + token.lifetime_s


def settings_of(spec: ClusterSpec, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    """The effective settings of topics that are there, by name. Raises AuditFailure."""
    asked = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    if not asked:
        return {}
    admin = _admin(spec)
    found = {}
    for resource, future in admin.describe_configs(asked, request_timeout=_CONFIGS_WITHIN_S).items():
        try:
            entries = future.result(_CONFIGS_WITHIN_S)
        except KafkaException as error:
            why = f"the settings of {resource.name} can't be read: {error.args[0].str()}"
            raise AuditFailure(spec.bootstrap, why, _CONFIGS_WANT) from error
        found[str(resource.name)] = {name: str(entry.value) for name, entry in entries.items()}
    return found


def _compacted(spec: ClusterSpec, topics: Iterable[str]) -> frozenset[str]:
    settings = settings_of(spec, topics)
    return frozenset(name for name, one in settings.items() if "compact" in one["cleanup.policy"])
