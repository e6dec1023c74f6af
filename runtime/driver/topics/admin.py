"""This module creates, grows and changes topics with confluent-kafka. Its blocking calls run in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from runtime.contract.client.secrets import redacted
from runtime.contract.spec.mirror import ConfigUpdate, TopicSettings

T = TypeVar("T")

_TIMEOUT_S = 20.0
_PER_REQUEST = 200  # topics in one request
BROKERS_DEFAULT = -1  # replicas of a topic that is created with the cluster's own replication


@dataclass(frozen=True, slots=True)
class TopicToCreate:
    """This value requests a topic."""

    name: str
    partitions: int
    config: Mapping[str, str]
    replication: int = BROKERS_DEFAULT


class TopicAdmin:
    """A TopicAdmin changes topics of one cluster.

    Its methods return refusals as texts by topic and raise nothing for them.
    """

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    async def create(self, topics: Sequence[TopicToCreate]) -> dict[str, str]:
        """Creates topics. An existing topic counts as created."""
        wanted = [
            NewTopic(one.name, one.partitions, one.replication, config=dict(one.config)) for one in topics
        ]
        failed: dict[str, str] = {}
        for some in _groups(wanted):
            failed |= await asyncio.to_thread(self._create, some)
        return failed

    async def grow(self, partitions: Mapping[str, int]) -> dict[str, str]:
        """Raises the partition counts of topics."""
        wanted = [NewPartitions(name, count) for name, count in partitions.items()]
        failed: dict[str, str] = {}
        for some in _groups(wanted):
            failed |= await asyncio.to_thread(self._grow, some)
        return failed

    async def settings(self, topics: Iterable[str]) -> dict[str, TopicSettings]:
        """Returns the settings of those topics whose settings could be read."""
        found: dict[str, TopicSettings] = {}
        for some in _groups(sorted(topics)):
            found |= await asyncio.to_thread(self._describe, some)
        return found

    async def edit(self, edits: Mapping[str, ConfigUpdate]) -> dict[str, str]:
        """Changes the settings of topics."""
        failed: dict[str, str] = {}
        for some in _groups(sorted(edits)):
            failed |= await asyncio.to_thread(self._edit, {name: edits[name] for name in some})
        return failed

    def _create(self, topics: list[NewTopic]) -> dict[str, str]:
        futures = self._client.create_topics(topics, operation_timeout=_TIMEOUT_S, request_timeout=_TIMEOUT_S)
        return _failures(futures, but=KafkaError.TOPIC_ALREADY_EXISTS)

    def _grow(self, partitions: list[NewPartitions]) -> dict[str, str]:
        return _failures(self._client.create_partitions(partitions, request_timeout=_TIMEOUT_S))

    def _describe(self, topics: list[str]) -> dict[str, TopicSettings]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
        found: dict[str, TopicSettings] = {}
        for resource, future in self._client.describe_configs(resources, request_timeout=_TIMEOUT_S).items():
            try:
                entries: dict[str, ConfigEntry] = future.result(_TIMEOUT_S)
            except KafkaException:
                continue
            found[resource.name] = _settings(entries)
        return found

    def _edit(self, edits: Mapping[str, ConfigUpdate]) -> dict[str, str]:
        resources = []
        for name, edit in edits.items():
            changes = [_entry(key, value, AlterConfigOpType.SET) for key, value in edit.set.items()]
            changes += [_entry(key, None, AlterConfigOpType.DELETE) for key in sorted(edit.unset)]
            resources.append(ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes))
        futures = self._client.incremental_alter_configs(resources, request_timeout=_TIMEOUT_S)
        return _failures({resource.name: future for resource, future in futures.items()})


def _entry(key: str, value: str | None, how: AlterConfigOpType) -> ConfigEntry:
    return ConfigEntry(key, value, incremental_operation=how)


def _settings(entries: Mapping[str, ConfigEntry]) -> TopicSettings:
    explicit: dict[str, str] = {}
    inherited: dict[str, str] = {}
    own: object = ConfigSource.DYNAMIC_TOPIC_CONFIG.value  # entries hold the number
    for key, entry in entries.items():
        if entry.value is not None:
            (explicit if entry.source == own else inherited)[key] = entry.value
    return TopicSettings(explicit, inherited)


def _failures(futures: Mapping[str, Any], but: int | None = None) -> dict[str, str]:
    """Returns the refusals by topic, except those with the error code `but`."""
    failed: dict[str, str] = {}
    for name, future in futures.items():
        try:
            future.result(_TIMEOUT_S + 5)
        except KafkaException as failure:
            error = failure.args[0]
            if but is None or error.code() != but:
                failed[name] = redacted(error.str())
        except TimeoutError:
            failed[name] = "no answer in time"
    return failed


def _groups(items: Sequence[T]) -> list[list[T]]:
    return [list(items[start : start + _PER_REQUEST]) for start in range(0, len(items), _PER_REQUEST)]
