"""This module reads the offsets that groups committed at a source, once for all flows with that source."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.queries.groups import Committed, committed_by, list_groups

Selects = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class CommittedOffsetsSnapshot:
    """A CommittedOffsetsSnapshot holds the committed offsets of one read.

    `failed` names what could not be read, and why.
    """

    cluster: KafkaCluster
    read_at: float
    offsets: Mapping[str, Committed] = field(default_factory=dict)
    failed: tuple[str, ...] = ()


class CommittedOffsetsReader:
    """A CommittedOffsetsReader reads the groups of all flows at one source.

    Concurrent callers share one read.

    Each read covers the groups of every flow that has called before and not left.
    """

    def __init__(self) -> None:
        self._selects: dict[str, Selects] = {}
        self._newest: CommittedOffsetsSnapshot | None = None
        self._reading = asyncio.Lock()

    def leave(self, flow: str, selects: Selects) -> None:
        """Stops reading groups for the flow, unless a newer version of it has called since."""
        if self._selects.get(flow) == selects:
            del self._selects[flow]

    async def read(
        self, cluster: KafkaCluster, flow: str, selects: Selects, at_most_s: float
    ) -> CommittedOffsetsSnapshot:
        """Returns offsets of all groups that the flow selects, at most `at_most_s` seconds old.

        Raises WireError.
        """
        async with self._reading:
            newest = self._newest
            if self._selects.get(flow) != selects:
                self._selects[flow] = selects
                newest = None
            now_s = asyncio.get_running_loop().time()
            if newest is None or newest.cluster is not cluster or now_s - newest.read_at > at_most_s:
                newest = self._newest = await self._read(cluster, now_s)
            return newest

    async def _read(self, cluster: KafkaCluster, now_s: float) -> CommittedOffsetsSnapshot:
        selects = list(self._selects.values())
        listed = await list_groups(cluster)
        names = [name for name in listed.groups if any(one(name) for one in selects)]
        read = await committed_by(cluster, names)
        failed = [f"{group}: {why}" for group, why in read.failed.items()]
        failed += [f"broker {node}: {why}" for node, why in listed.missing.items()]
        return CommittedOffsetsSnapshot(cluster, now_s, read.offsets, tuple(failed))
