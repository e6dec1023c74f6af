"""The source clusters of a slot: flows with the same settings share one, and the last to leave closes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import msgspec

from runtime.contract.jobspec import ClusterSpec
from runtime.copy.provenance import ProducerDirectory
from runtime.copy.wire.cluster import Cluster

Opening = Callable[[str, ClusterSpec], Awaitable[Cluster]]


@dataclass(eq=False, slots=True)
class Source:
    """`spec` is what it was opened with; `users` have taken it and not left yet."""

    spec: ClusterSpec
    cluster: Cluster
    directory: ProducerDirectory
    users: int = 0


@dataclass(eq=False, slots=True)
class _Place:
    """Who comes while it is being opened waits for it."""

    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    source: Source | None = None


class Sources:
    """Each `take` is followed by one `leave`. `opening` raises WireError, ClientSettingsError."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._places: dict[bytes, _Place] = {}

    async def take(self, name: str, spec: ClusterSpec) -> Source:
        place = self._places.setdefault(_key(spec), _Place())
        async with place.opening:
            if place.source is None:
                cluster = await self._opening(name, spec)
                place.source = Source(spec, cluster, ProducerDirectory(cluster))
            place.source.users += 1
            return place.source

    async def leave(self, source: Source) -> None:
        source.users -= 1
        if not source.users:
            self._places[_key(source.spec)].source = None
            await source.cluster.close()

    async def close(self) -> None:
        """Whoever uses them."""
        for place in self._places.values():
            if place.source is not None:
                await place.source.cluster.close()


def _key(spec: ClusterSpec) -> bytes:
    return msgspec.json.encode(spec, order="deterministic")
