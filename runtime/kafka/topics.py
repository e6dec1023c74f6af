"""This module caches the metadata of topics by name and by id, with the last known leaders."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from runtime.contract.spec.naming import NO_TOPIC_ID, is_from_kafka, name_id
from runtime.kafka.protocol.fetch import LeaderHint
from runtime.kafka.protocol.metadata import NO_LEADER, TopicMetadata

_LONG_AGO = float("-inf")


class _Entry(Struct, frozen=True):
    topic: TopicMetadata
    refreshed_at: float


class TopicCache:
    """The cache replaces a topic that was recreated under the same name, and drops its old id."""

    def __init__(self, max_age_s: float) -> None:
        self._max_age_s = max_age_s
        self._by_name: dict[str, _Entry] = {}
        self._names: dict[bytes, str] = {}

    def store(self, topics: Iterable[TopicMetadata], now: float) -> None:
        for topic in topics:
            before = self._by_name.get(topic.name)
            if before is not None and before.topic.id != topic.id:
                self._names.pop(before.topic.id, None)
            earlier = before.topic if before is not None and before.topic.id == topic.id else None
            self._by_name[topic.name] = _Entry(topic if earlier is None else _newest(topic, earlier), now)
            if earlier is None and topic.id != NO_TOPIC_ID:
                self._names[topic.id] = topic.name
                # Records of the ledger may hold an id made of the name, from before the cluster was upgraded.
                self._names[name_id(topic.name)] = topic.name

    def by_name(self, name: str) -> TopicMetadata | None:
        entry = self._by_name.get(name)
        return entry.topic if entry else None

    def by_id(self, topic_id: bytes) -> TopicMetadata | None:
        return self.by_name(self._names.get(topic_id, ""))

    def stale(self, names: Iterable[str], now: float) -> list[str]:
        """Returns the topics to refresh: unknown, old, with an error, or with a leaderless partition."""
        return [
            name
            for name in names
            if (entry := self._by_name.get(name)) is None
            or entry.topic.error
            or now - entry.refreshed_at > self._max_age_s
            or any(partition.leader == NO_LEADER for partition in entry.topic.partitions.values())
        ]

    def refreshed_at(self, name: str) -> float:
        entry = self._by_name.get(name)
        return entry.refreshed_at if entry else _LONG_AGO

    def learn(self, topic_id: bytes, index: int, hint: LeaderHint) -> None:
        """Stores a leader that a broker named in a response, if its epoch is newer than the known one."""
        name = self._names.get(topic_id)
        entry = self._by_name.get(name) if name else None
        partition = entry.topic.partitions.get(index) if entry else None
        if (
            entry is None
            or partition is None
            or hint.leader == NO_LEADER
            or hint.epoch <= partition.leader_epoch
        ):
            return
        changed = replace(partition, leader=hint.leader, leader_epoch=hint.epoch)
        partitions = {**entry.topic.partitions, index: changed}
        self._by_name[entry.topic.name] = _Entry(
            replace(entry.topic, partitions=partitions), entry.refreshed_at
        )

    def doubt(self, name: str) -> None:
        """Marks the topic as stale: its metadata are refreshed before the next use."""
        entry = self._by_name.get(name)
        if entry is not None:
            self._by_name[name] = replace(entry, refreshed_at=_LONG_AGO)


def _newest(received: TopicMetadata, cached: TopicMetadata) -> TopicMetadata:
    """Keeps newer known leaders, because a broker with stale metadata names leaders that were replaced.

    Without a topic id from Kafka the response's leaders are taken, because a recreated topic starts with
    epoch 0 again.
    """
    if received is cached or not is_from_kafka(received.id):
        return received
    newer = {
        index: partition
        for index, partition in cached.partitions.items()
        if index in received.partitions and received.partitions[index].leader_epoch < partition.leader_epoch
    }
    return replace(received, partitions={**received.partitions, **newer}) if newer else received
