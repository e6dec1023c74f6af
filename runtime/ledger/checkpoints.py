"""Reads a cluster's checkpoints of group offsets repeatedly."""

from __future__ import annotations

from runtime.contract.records import checkpoint
from runtime.contract.records.checkpoint import Checkpoint, CheckpointKey, UnreadableCheckpoint
from runtime.contract.spec import naming
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.codes import ErrorCode
from runtime.ledger.scan import InternalTopicScan, TopicReplaced

Place = tuple[str, str, int]  # Group, topic and partition at the cluster itself.


class Checkpoints:
    """The newest checkpoints of a cluster, by key and by the partition that they set.

    `refresh` must come first. A cluster that no job copies into has no checkpoints. A checkpoint of a newer
    format version is ignored.
    """

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._scan: InternalTopicScan | None = None
        self._by_key: dict[CheckpointKey, Checkpoint] = {}
        # A flow may copy two topics into the same destination topic one after the other, so that several keys
        # share a place.
        self._by_place: dict[Place, dict[CheckpointKey, Checkpoint]] = {}

    def _forget(self) -> None:
        self._scan = None
        self._by_key.clear()
        self._by_place.clear()

    async def refresh(self) -> None:
        """Reads the checkpoints that were written since the last call. Raises WireError."""
        scan = await self._open_scan()
        if scan is None:
            return
        try:
            await scan.refresh()
        except TopicReplaced:
            self._forget()
            await self.refresh()
            return
        for stored, value in scan.fold.news():
            self._take_record(stored, value)

    async def _open_scan(self) -> InternalTopicScan | None:
        if self._scan is None:
            topic = (await self._cluster.topics([naming.CHECKPOINTS]))[naming.CHECKPOINTS]
            if topic.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._scan = InternalTopicScan(self._cluster, naming.CHECKPOINTS, 0)
        return self._scan

    def get(self, key: CheckpointKey) -> Checkpoint | None:
        """Returns the newest checkpoint of a key."""
        return self._by_key.get(key)

    def of_flow(self, flow: str) -> dict[CheckpointKey, Checkpoint]:
        """Returns the newest checkpoints of a flow."""
        return {key: one for key, one in self._by_key.items() if key.flow == flow}

    def at(self, group: str, topic: str, partition: int) -> list[Checkpoint]:
        """Returns the newest checkpoint of every flow for one partition of the cluster and a group."""
        return list(self._by_place.get((group, topic, partition), {}).values())

    def _take_record(self, stored: bytes, value: bytes | None) -> None:
        key = checkpoint.decode_key(stored)
        if key is None:
            return
        older = self._by_key.pop(key, None)
        if older is not None:
            self._by_place[_place(key, older)].pop(key, None)
        try:
            found = checkpoint.decode(value) if value is not None else None
        except UnreadableCheckpoint:
            return
        if found is not None:
            self._by_key[key] = found
            self._by_place.setdefault(_place(key, found), {})[key] = found


def _place(key: CheckpointKey, found: Checkpoint) -> Place:
    return key.group, found.destination_topic, key.partition
