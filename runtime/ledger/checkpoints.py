"""A cluster's checkpoints of group offsets, read again and again."""

from __future__ import annotations

from runtime.contract.records import checkpoint
from runtime.contract.records.checkpoint import Checkpoint, CheckpointKey, UnreadableCheckpoint
from runtime.contract.spec import naming
from runtime.kafka.cluster import Cluster
from runtime.kafka.codes import ErrorCode
from runtime.ledger.scan import Scan, TopicReplaced

Place = tuple[str, str, int]  # group, topic, partition, at the cluster itself


class Checkpoints:
    """`refresh` first; a cluster that no job copies into has none. One of a newer version is passed over."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._scan: Scan | None = None
        self._by_key: dict[CheckpointKey, Checkpoint] = {}
        # A flow may copy two topics into places of the same name one after the other: by its own key, then.
        self._by_place: dict[Place, dict[CheckpointKey, Checkpoint]] = {}

    def _forget(self) -> None:
        self._scan = None
        self._by_key.clear()
        self._by_place.clear()

    async def refresh(self) -> None:
        """Raises WireError."""
        scan = await self._opened()
        if scan is None:
            return
        try:
            await scan.refresh()
        except TopicReplaced:
            self._forget()
            await self.refresh()
            return
        for stored, value in scan.fold.news():
            self._take_in(stored, value)

    async def _opened(self) -> Scan | None:
        if self._scan is None:
            topic = (await self._cluster.topics([naming.CHECKPOINTS]))[naming.CHECKPOINTS]
            if topic.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._scan = Scan(self._cluster, naming.CHECKPOINTS, 0)
        return self._scan

    def get(self, key: CheckpointKey) -> Checkpoint | None:
        return self._by_key.get(key)

    def of_flow(self, flow: str) -> dict[CheckpointKey, Checkpoint]:
        return {key: one for key, one in self._by_key.items() if key.flow == flow}

    def at(self, group: str, topic: str, partition: int) -> list[Checkpoint]:
        """What every flow into the cluster last said of one of its partitions."""
        return list(self._by_place.get((group, topic, partition), {}).values())

    def _take_in(self, stored: bytes, value: bytes | None) -> None:
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
