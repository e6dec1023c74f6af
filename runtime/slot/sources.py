"""The flows of a slot share one client per source cluster; it closes when the last flow leaves it."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from runtime.contract.spec.jobspec import ClusterSpec
from runtime.kafka.cluster import KafkaCluster, UnknownCluster
from runtime.ledger.producer_directory import ProducerDirectory

Opening = Callable[[str, ClusterSpec], Awaitable[KafkaCluster]]


@dataclass(frozen=True, eq=False, slots=True)
class SourceCluster:
    """An open source cluster, with its producer directory."""

    name: str
    cluster: KafkaCluster
    directory: ProducerDirectory


class SourceClusters:
    """The sources that the slot may connect to, by name.

    An assignment can't add a source or change its settings. Each `take` is followed by one `leave`. `opening`
    raises WireError, ClientSettingsError.
    """

    def __init__(self, opening: Opening, specs: Mapping[str, ClusterSpec]) -> None:
        self._opening = opening
        self._specs = dict(specs)
        self._open: dict[str, SourceCluster] = {}
        self._users: Counter[str] = Counter()
        self._opening_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def take(self, name: str) -> SourceCluster:
        """Returns the open source of a name, and opens it where it is not open.

        Raises UnknownCluster for a name that the slot was not started with, and the errors of `opening`.
        """
        spec = self._specs.get(name)
        if spec is None:
            raise UnknownCluster(name)
        async with self._opening_locks[name]:  # Concurrent callers wait while the source is being opened.
            if name not in self._open:
                cluster = await self._opening(name, spec)
                self._open[name] = SourceCluster(name, cluster, ProducerDirectory(cluster))
            self._users[name] += 1
            return self._open[name]

    async def leave(self, source: SourceCluster) -> None:
        """Ends one use of a source, and closes it after the last one."""
        self._users[source.name] -= 1
        if not self._users[source.name]:
            del self._open[source.name]
            await source.cluster.close()

    async def close(self) -> None:
        """Closes all sources, whether they are in use or not."""
        for source in self._open.values():
            await source.cluster.close()
