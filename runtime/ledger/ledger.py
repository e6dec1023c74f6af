"""Reads the ledger for slots, drivers and group sync: the newest committed values, and undecided writes."""

import asyncio
import time
from dataclasses import dataclass, replace

from runtime.contract.records.ledger import (
    NO_ORPHANS,
    Generation,
    GenerationKey,
    OrphanedKey,
    Orphans,
    PartitionKey,
    Progress,
    ProgressKey,
    ReplayedKey,
    decode_generation,
    decode_key,
    decode_key_of,
    decode_orphaned,
    decode_progress,
    decode_replayed,
    encode_key,
    partition_of,
)
from runtime.contract.spec import naming
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode
from runtime.ledger.records import InternalTopicScan, TopicReplaced

_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class UndecidedProgress:
    """A transaction that is not decided yet has written this partition's progress.

    A caller that resumes from it must wait, because a broker acknowledges the end of a transaction before its
    markers are written. A caller that only displays progress uses `committed`.
    """

    committed: Progress | None


class Ledger:
    """A ledger owns the scans of the ledger partitions that were read so far.

    A flow must be refreshed before its values are requested. One scan serves all flows of a ledger partition.
    """

    def __init__(self, cluster: KafkaCluster, partitions: int) -> None:
        self._cluster = cluster
        self._scans: dict[int, InternalTopicScan] = {}
        self.partitions = partitions

    @classmethod
    async def open(cls, cluster: KafkaCluster) -> "Ledger":
        """Returns the ledger of a cluster, not read yet. Raises WireError."""
        topic = (await cluster.topics([naming.LEDGER], fresh=True))[naming.LEDGER]
        if topic.error is not ErrorCode.NONE:
            raise BrokerError(topic.error, naming.LEDGER)
        return cls(cluster, len(topic.partitions))

    def partition(self, flow: str) -> int:
        """Returns the ledger partition that holds the flow's records."""
        return partition_of(flow, self.partitions)

    async def refresh(self, flow: str, within: float = 30.0) -> None:
        """Reads the flow's ledger partition up to a high watermark taken now.

        Raises WireError, TopicReplaced, BatchFailure. A ledger that was replaced is read from its beginning
        at the next refresh.
        """
        try:
            await self._scan(flow).refresh(within)
        except TopicReplaced:
            self._scans.pop(self.partition(flow), None)
            raise

    async def decided(self, flow: str, within: float = 30.0) -> None:
        """Refreshes until no open transaction has written the flow's generation.

        A broker acknowledges the end of a transaction before its markers are written. Raises WireError
        where one stays open for longer than `within` seconds.
        """
        await self.refresh(flow, within)
        until = time.monotonic() + within
        while self.undecided(flow):
            if time.monotonic() > until:
                raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS, f"who may copy {flow}")
            await asyncio.sleep(_POLL_S)
            await self.refresh(flow, within)

    def generation(self, flow: str) -> Generation | None:
        """Returns the newest committed generation of a flow."""
        value = self._scan(flow).fold.get(encode_key(GenerationKey(flow)))
        return decode_generation(value) if value is not None else None

    def undecided(self, flow: str) -> bool:
        """Returns whether a transaction that is not decided yet has written the flow's generation."""
        return self._scan(flow).fold.undecided(encode_key(GenerationKey(flow)))

    def progress(self, key: PartitionKey) -> Progress | UndecidedProgress | None:
        """Returns the progress of one partition, or UndecidedProgress where an open transaction has written
        it.
        """
        committed = self.committed(key)
        undecided = self._scan(key.flow).fold.undecided(encode_key(ProgressKey(key)))
        return UndecidedProgress(committed) if undecided else committed

    def committed(self, key: PartitionKey) -> Progress | None:
        """Returns the newest committed progress of one partition."""
        value = self._scan(key.flow).fold.get(encode_key(ProgressKey(key)))
        return decode_progress(value) if value is not None else None

    def all_progress(self, flow: str) -> dict[PartitionKey, Progress]:
        """Returns the committed progress of every partition that the flow ever copied."""
        found: dict[PartitionKey, Progress] = {}
        for key, value in self._scan(flow).fold.items():
            match decode_key_of(key, flow):
                case ProgressKey(of):
                    found[of] = decode_progress(value)
        return found

    def orphans(self, flow: str) -> dict[PartitionKey, Orphans]:
        """Returns the orphaned ranges and the replayed ones, of partitions that have any."""
        found: dict[PartitionKey, Orphans] = {}
        for key, value in self._scan(flow).fold.items():
            match decode_key_of(key, flow):
                case OrphanedKey(of, low):
                    known = found.get(of, NO_ORPHANS)
                    found[of] = replace(known, orphaned=(*known.orphaned, (low, decode_orphaned(value))))
                case ReplayedKey(of, low):
                    known = found.get(of, NO_ORPHANS)
                    found[of] = replace(known, replayed=(*known.replayed, (low, decode_replayed(value))))
        return found

    def generations(self) -> dict[str, Generation]:
        """Returns the generations of all flows whose ledger partition was refreshed."""
        found: dict[str, Generation] = {}
        for scan in self._scans.values():
            for key, value in scan.fold.items():
                match decode_key(key):
                    case GenerationKey(flow):
                        found[flow] = decode_generation(value)
        return found

    def _scan(self, flow: str) -> InternalTopicScan:
        partition = self.partition(flow)
        if partition not in self._scans:
            self._scans[partition] = InternalTopicScan(self._cluster, naming.LEDGER, partition)
        return self._scans[partition]
