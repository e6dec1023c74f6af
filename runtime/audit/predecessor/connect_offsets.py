"""Reads the offsets topic of Kafka Connect, where MirrorMaker 2 keeps its position in each source partition.

MirrorSourceConnector writes the key `["NAME", {"cluster": ALIAS, "partition": P, "topic": T}]` and the value
`{"offset": N}`. N is the offset of the last record that it copied, so copying continues at N + 1
(`MirrorSourceTask.initializeConsumer` of Kafka). A null value is an offset that was reset. The other
connectors of MirrorMaker 2 write keys of another form into the same topic.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.ledger.scan import InternalTopicScan

_KEYS = ("cluster", "partition", "topic")  # in the order in which Connect serializes them


class UnreadableOffset(ValueError):
    """A record of the offsets topic has the key of a source partition and another value than an offset."""


def next_offsets(records: Iterable[tuple[bytes, bytes]], alias: str) -> dict[TopicPartition, int]:
    """Returns the next source offset to copy of each partition of the source cluster `alias`.

    Connect finds a position by the bytes of its key. A key with its parts in another order was written by
    hand and counts only where Connect's own is missing. Raises UnreadableOffset.
    """
    own: dict[TopicPartition, int] = {}
    others: dict[TopicPartition, int] = {}
    for key, value in records:
        partition = _partition(key)
        if partition is None or partition.get("cluster") != alias:
            continue
        at = TopicPartition(str(partition["topic"]), int(partition["partition"]))
        offset = _json(value)
        copied = offset.get("offset") if isinstance(offset, dict) else None
        if isinstance(copied, bool) or not isinstance(copied, int):
            raise UnreadableOffset(f"the position of {at.topic}-{at.partition} is no offset: {value[:100]!r}")
        if copied >= 0:
            (own if tuple(partition) == _KEYS else others)[at] = copied + 1
    return others | own


def _partition(key: bytes) -> dict[str, Any] | None:
    """Returns the source partition of a MirrorSourceConnector's key, None for any other key."""
    match _json(key):
        case [str(), {"cluster": str(), "partition": int(), "topic": str()} as partition]:
            return dict(partition) if len(partition) == len(_KEYS) else None
    return None


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


class ConnectOffsetsTopic:
    """The offsets topic of one Connect cluster. Each `read` continues where the last one ended."""

    def __init__(self, scans: Iterable[InternalTopicScan], alias: str) -> None:
        self._scans = tuple(scans)
        self._alias = alias

    @classmethod
    async def open(cls, cluster: KafkaCluster, topic: str, alias: str) -> ConnectOffsetsTopic:
        """Opens the topic. Raises WireError; BrokerError UNKNOWN_TOPIC_OR_PARTITION where it is missing."""
        known = (await cluster.topics([topic], fresh=True)).get(topic)
        if known is None or known.error is not ErrorCode.NONE:
            raise BrokerError(known.error if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic)
        return cls((InternalTopicScan(cluster, topic, one) for one in sorted(known.partitions)), alias)

    async def read(self) -> dict[TopicPartition, int]:
        """Returns the next source offset to copy of each partition.

        Raises WireError, UnreadableOffset, and READ_FAILURES of the scan.
        """
        await asyncio.gather(*(scan.refresh() for scan in self._scans))
        return next_offsets((pair for scan in self._scans for pair in scan.fold.items()), self._alias)
