"""What groups committed at a source, read once for all flows that start there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from runtime.kafka.cluster import Cluster
from runtime.kafka.queries.groups import Committed, committed_by, list_groups

Selects = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`failed` says what could not be read, and why."""

    cluster: Cluster
    read_at: float
    offsets: Mapping[str, Committed] = field(default_factory=dict)
    failed: tuple[str, ...] = ()


class Reader:
    """Who asks while another reads gets the same answer; who asked before is read along."""

    def __init__(self) -> None:
        self._selects: dict[str, Selects] = {}
        self._newest: Snapshot | None = None
        self._reading = asyncio.Lock()

    def leave(self, flow: str, selects: Selects) -> None:
        """The flow asks no more, unless a newer version of it has asked since."""
        if self._selects.get(flow) == selects:
            del self._selects[flow]

    async def read(self, cluster: Cluster, flow: str, selects: Selects, at_most_s: float) -> Snapshot:
        """With all groups that the flow selects, and no older than that. Raises WireError."""
        async with self._reading:
            newest = self._newest
            if self._selects.get(flow) != selects:
                self._selects[flow] = selects
                newest = None
            now_s = asyncio.get_running_loop().time()
            if newest is None or newest.cluster is not cluster or now_s - newest.read_at > at_most_s:
                newest = self._newest = await self._read(cluster, now_s)
            return newest

    async def _read(self, cluster: Cluster, now_s: float) -> Snapshot:
        selects = list(self._selects.values())
        listed = await list_groups(cluster)
        names = [name for name in listed.groups if any(one(name) for one in selects)]
        read = await committed_by(cluster, names)
        failed = [f"{group}: {why}" for group, why in read.failed.items()]
        failed += [f"broker {node}: {why}" for node, why in listed.missing.items()]
        return Snapshot(cluster, now_s, read.offsets, tuple(failed))
