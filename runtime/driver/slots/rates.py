"""Bytes a second by partition, from what slots report: what partitions weigh in the balance. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.status import PartitionStatus

_SMOOTH = 0.3  # how much the newest measure counts


class Rates:
    def __init__(self) -> None:
        self._last: dict[PartitionKey, tuple[int, int]] = {}
        self.by_partition: dict[PartitionKey, float] = {}

    def take(self, at_ms: int, partitions: Iterable[PartitionStatus]) -> None:
        for one in partitions:
            key = PartitionKey(one.flow, one.topic, one.partition)
            then, bytes_then = self._last.get(key, (at_ms, one.bytes))
            if at_ms == then:
                self._last.setdefault(key, (at_ms, one.bytes))
                continue
            # A slot that began anew counts from zero.
            more = one.bytes - bytes_then if one.bytes >= bytes_then else one.bytes
            rate = more * 1000 / (at_ms - then) if at_ms > then else 0.0
            old = self.by_partition.get(key, rate)
            self.by_partition[key] = old + _SMOOTH * (rate - old)
            self._last[key] = (at_ms, one.bytes)
