"""The source clusters of a slot: flows of one cluster share a connection, and the last to leave closes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from runtime.contract.spec.jobspec import ClusterSpec
from runtime.kafka.cluster import Cluster
from runtime.kafka.spec_clusters import UnknownCluster
from runtime.ledger.producer_directory import ProducerDirectory

Opening = Callable[[str, ClusterSpec], Awaitable[Cluster]]


@dataclass(eq=False, slots=True)
class Source:
    """An open source cluster; `users` counts the flows that have taken it and not left yet."""

    name: str
    cluster: Cluster
    directory: ProducerDirectory
    users: int = 0


@dataclass(eq=False, slots=True)
class _Place:
    """Who comes while it is being opened waits for it."""

    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    source: Source | None = None


class Sources:
    """The sources that the slot may reach, by name: no assignment adds one or changes how one is reached.

    Each `take` is followed by one `leave`. `opening` raises WireError, ClientSettingsError.
    """

    def __init__(self, opening: Opening, specs: Mapping[str, ClusterSpec]) -> None:
        self._opening = opening
        self._specs = dict(specs)
        self._places: dict[str, _Place] = {}

    async def take(self, name: str) -> Source:
        """Raises UnknownCluster for a name that the slot was not started with."""
        spec = self._specs.get(name)
        if spec is None:
            raise UnknownCluster(name)
        place = self._places.setdefault(name, _Place())
        async with place.opening:
            if place.source is None:
                cluster = await self._opening(name, spec)
                place.source = Source(name, cluster, ProducerDirectory(cluster))
            place.source.users += 1
            return place.source

    async def leave(self, source: Source) -> None:
        source.users -= 1
        if not source.users:
            self._places[source.name].source = None
            await source.cluster.close()

    async def close(self) -> None:
        """Whoever uses them."""
        for place in self._places.values():
            if place.source is not None:
                await place.source.cluster.close()
