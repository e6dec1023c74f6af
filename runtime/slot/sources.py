"""The flows of a slot share one client per source cluster; it closes when the last flow leaves it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from runtime.contract.spec.jobspec import ClusterSpec
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.spec_clusters import UnknownCluster
from runtime.ledger.producer_directory import ProducerDirectory

Opening = Callable[[str, ClusterSpec], Awaitable[KafkaCluster]]


@dataclass(eq=False, slots=True)
class SourceCluster:
    """An open source cluster; `users` counts the flows that use it."""

    name: str
    cluster: KafkaCluster
    directory: ProducerDirectory
    users: int = 0


@dataclass(eq=False, slots=True)
class _Place:
    """The entry of a source; its lock makes concurrent callers wait while the source is being opened."""

    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    source: SourceCluster | None = None


class SourceClusters:
    """The sources that the slot may connect to, by name.

    An assignment can't add a source or change its settings. Each `take` is followed by one `leave`. `opening`
    raises WireError, ClientSettingsError.
    """

    def __init__(self, opening: Opening, specs: Mapping[str, ClusterSpec]) -> None:
        self._opening = opening
        self._specs = dict(specs)
        self._places: dict[str, _Place] = {}

    async def take(self, name: str) -> SourceCluster:
        """Returns the open source of a name, and opens it where it is not open.

        Raises UnknownCluster for a name that the slot was not started with, and the errors of `opening`.
        """
        spec = self._specs.get(name)
        if spec is None:
            raise UnknownCluster(name)
        place = self._places.setdefault(name, _Place())
        async with place.opening:
            if place.source is None:
                cluster = await self._opening(name, spec)
                place.source = SourceCluster(name, cluster, ProducerDirectory(cluster))
            place.source.users += 1
            return place.source

    async def leave(self, source: SourceCluster) -> None:
        """Ends one use of a source, and closes it after the last one."""
        source.users -= 1
        if not source.users:
            self._places[source.name].source = None
            await source.cluster.close()

    async def close(self) -> None:
        """Closes all sources, whether they are in use or not."""
        for place in self._places.values():
            if place.source is not None:
                await place.source.cluster.close()
