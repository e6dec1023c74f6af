"""This module measures bytes a second of each partition from the slots' reports, for the balance of loads.

It is pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.status import PartitionStatus

_SMOOTH = 0.3  # weight of the newest measurement


class PartitionRates:
    """A PartitionRates object holds the smoothed rate of each partition in bytes a second."""

    def __init__(self) -> None:
        self._last: dict[PartitionKey, tuple[int, int]] = {}
        self.by_partition: dict[PartitionKey, float] = {}

    def update(self, at_ms: int, partitions: Iterable[PartitionStatus]) -> None:
        """Updates the rates from one report."""
        for one in partitions:
            key = PartitionKey(one.flow, one.topic, one.partition)
            previous_ms, previous_bytes = self._last.get(key, (at_ms, one.bytes))
            if at_ms == previous_ms:
                self._last.setdefault(key, (at_ms, one.bytes))
                continue
            # A slot that was restarted counts from zero.
            increase = one.bytes - previous_bytes if one.bytes >= previous_bytes else one.bytes
            rate = increase * 1000 / (at_ms - previous_ms) if at_ms > previous_ms else 0.0
            old = self.by_partition.get(key, rate)
            self.by_partition[key] = old + _SMOOTH * (rate - old)
            self._last[key] = (at_ms, one.bytes)
