"""Counts the salvaged records of one partition while they are read. It is pure."""

from __future__ import annotations

from runtime.audit.read.records_fetch import FetchedRecord
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.provenance import origins
from runtime.contract.views.salvage_view import SalvagedPartition, SalvagedRecord

SHOWN = 10


class SalvageCounter:
    """Counts one partition's salvaged records; it keeps the first of them, the last one and the time
    range.
    """

    def __init__(self, cluster: str, cluster_id: str, key: PartitionKey, destination_topic: str) -> None:
        self.stretches: list[tuple[int, int, str]] = []
        self.kept_back = 0
        self.lost = 0
        self._cluster, self._cluster_id = cluster, cluster_id
        self._key, self._destination_topic = key, destination_topic
        self._records = self._bytes = 0
        self._first: list[SalvagedRecord] = []
        self._last: SalvagedRecord | None = None
        self._earliest: int | None = None
        self._latest: int | None = None

    def counted(self, record: FetchedRecord, flow: str | None) -> SalvagedRecord:
        """Counts a record and returns it as it is shown."""
        salvaged = SalvagedRecord(
            cluster=self._cluster,
            cluster_id=self._cluster_id,
            topic=self._key.topic,
            partition=self._key.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp if record.timestamp >= 0 else None,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            came_from=[
                (hop.cluster, hop.topic, hop.partition, hop.offset) for hop in origins(record.headers)
            ],
            flow=flow,
        )
        self._records += 1
        self._bytes += len(record.key or b"") + len(record.value or b"")
        if len(self._first) < SHOWN:
            self._first.append(salvaged)
        self._last = salvaged
        if (at := salvaged.timestamp_ms) is not None:
            self._earliest = at if self._earliest is None else min(self._earliest, at)
            self._latest = at if self._latest is None else max(self._latest, at)
        return salvaged

    def view(self, *, begun: bool, unread: str = "") -> SalvagedPartition:
        """Returns the result for the partition. `unread` says why it was not read to its end."""
        return SalvagedPartition(
            topic=self._key.topic,
            partition=self._key.partition,
            destination_topic=self._destination_topic,
            stretches=self.stretches,
            records=self._records,
            bytes=self._bytes,
            kept_back=self.kept_back,
            lost=self.lost,
            begun=begun,
            first_offset=self._first[0].offset if self._first else None,
            last_offset=self._last.offset if self._last is not None else None,
            first_timestamp_ms=self._earliest,
            last_timestamp_ms=self._latest,
            first=self._first,
            unread=unread,
        )
