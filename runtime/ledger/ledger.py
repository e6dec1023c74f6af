"""The ledger as a slot, a driver or a group sync reads it: newest committed values, and what is not decided
yet.
"""

import asyncio
import time
from dataclasses import dataclass, replace

from runtime.contract.records.ledger import (
    Generation,
    GenerationKey,
    OrphanedKey,
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
from runtime.contract.records.orphans import NONE, Orphans
from runtime.contract.spec import naming
from runtime.kafka.cluster import Cluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError
from runtime.ledger.scan import Scan, TopicReplaced

_LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Undecided:
    """A transaction that is not decided yet has written this partition's progress.

    Whoever resumes must wait: the end of a transaction is answered before its markers are written. Whoever
    only shows takes `committed`.
    """

    committed: Progress | None


class Ledger:
    """Reads lazily: `refresh` a flow first, then ask. One scan serves all flows of a ledger partition."""

    def __init__(self, cluster: Cluster, partitions: int) -> None:
        self._cluster = cluster
        self._scans: dict[int, Scan] = {}
        self.partitions = partitions

    @classmethod
    async def open(cls, cluster: Cluster) -> "Ledger":
        topic = (await cluster.topics([naming.LEDGER], fresh=True))[naming.LEDGER]
        if topic.error is not ErrorCode.NONE:
            raise BrokerError(topic.error, naming.LEDGER)
        return cls(cluster, len(topic.partitions))

    def partition(self, flow: str) -> int:
        return partition_of(flow, self.partitions)

    async def refresh(self, flow: str, within: float = 30.0) -> None:
        """Up to a high watermark taken now. Raises WireError, TopicReplaced, BatchFailure.

        A ledger that was replaced is read from its beginning at the next refresh.
        """
        try:
            await self._scan(flow).refresh(within)
        except TopicReplaced:
            self._scans.pop(self.partition(flow), None)
            raise

    async def decided(self, flow: str, within: float = 30.0) -> None:
        """Refreshed, and a generation that somebody is writing is decided: the end of a transaction is
        answered before its marks are written. Raises WireError where one stays open for longer.
        """
        await self.refresh(flow, within)
        until = time.monotonic() + within
        while self.undecided(flow):
            if time.monotonic() > until:
                raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS, f"who may copy {flow}")
            await asyncio.sleep(_LOOK_S)
            await self.refresh(flow, within)

    def generation(self, flow: str) -> Generation | None:
        value = self._scan(flow).fold.get(encode_key(GenerationKey(flow)))
        return decode_generation(value) if value is not None else None

    def undecided(self, flow: str) -> bool:
        """Whether a transaction that is not decided yet has written the flow's generation."""
        return self._scan(flow).fold.undecided(encode_key(GenerationKey(flow)))

    def progress(self, key: PartitionKey) -> Progress | Undecided | None:
        committed = self.committed(key)
        undecided = self._scan(key.flow).fold.undecided(encode_key(ProgressKey(key)))
        return Undecided(committed) if undecided else committed

    def committed(self, key: PartitionKey) -> Progress | None:
        """Returns the newest committed progress of one partition."""
        value = self._scan(key.flow).fold.get(encode_key(ProgressKey(key)))
        return decode_progress(value) if value is not None else None

    def all_progress(self, flow: str) -> dict[PartitionKey, Progress]:
        """Every partition the flow ever copied, as committed."""
        found: dict[PartitionKey, Progress] = {}
        for key, value in self._scan(flow).fold.items():
            match decode_key_of(key, flow):
                case ProgressKey(of):
                    found[of] = decode_progress(value)
        return found

    def orphans(self, flow: str) -> dict[PartitionKey, Orphans]:
        """What stayed behind, and what of it was replayed; of partitions that have any."""
        found: dict[PartitionKey, Orphans] = {}
        for key, value in self._scan(flow).fold.items():
            match decode_key_of(key, flow):
                case OrphanedKey(of, low):
                    known = found.get(of, NONE)
                    found[of] = replace(known, orphaned=(*known.orphaned, (low, decode_orphaned(value))))
                case ReplayedKey(of, low):
                    known = found.get(of, NONE)
                    found[of] = replace(known, replayed=(*known.replayed, (low, decode_replayed(value))))
        return found

    def generations(self) -> dict[str, Generation]:
        """By flow, of every flow whose partition was refreshed."""
        found: dict[str, Generation] = {}
        for scan in self._scans.values():
            for key, value in scan.fold.items():
                match decode_key(key):
                    case GenerationKey(flow):
                        found[flow] = decode_generation(value)
        return found

    def _scan(self, flow: str) -> Scan:
        partition = self.partition(flow)
        if partition not in self._scans:
            self._scans[partition] = Scan(self._cluster, naming.LEDGER, partition)
        return self._scans[partition]
