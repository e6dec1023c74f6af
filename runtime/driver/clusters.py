"""The clusters of a job as its driver sees them: one wire client and one admin client each, kept."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from runtime.contract import client
from runtime.contract.jobspec import ClusterSpec
from runtime.copy.wire.cluster import Cluster
from runtime.copy.wire.errors import WireError
from runtime.copy.wire.protocol.metadata import Topic
from runtime.driver.admin import Admin

_LISTING_S = 0.5  # flows that ask for the same cluster's topics at the same time share one answer


class WrongCluster(WireError):
    """Another cluster answers than the one that is pinned: nothing is done there."""


def named(spec: ClusterSpec, client_id: str) -> ClusterSpec:
    """The cluster with a client id that tells who asks, unless the topology chose one."""
    if "client.id" in spec.client:
        return spec
    return replace(spec, client={**spec.client, "client.id": client_id})


class Clusters:
    def __init__(self, job: str, specs: Mapping[str, ClusterSpec], environ: Mapping[str, str]) -> None:
        self._job = job
        self._specs = dict(specs)
        self._environ = environ
        self._open: dict[str, Cluster] = {}
        self._admins: dict[str, Admin] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._listings: dict[str, tuple[float, dict[str, Topic]]] = {}

    def know(self, specs: Mapping[str, ClusterSpec]) -> None:
        """After a reconfiguration; clusters whose settings changed are opened anew."""
        for name, spec in specs.items():
            if self._specs.get(name) != spec:
                self._specs[name] = spec
                self._admins.pop(name, None)
                self._open.pop(name, None)

    async def cluster(self, name: str) -> Cluster:
        """Raises WireError, ClientSettingsError."""
        async with self._opening.setdefault(name, asyncio.Lock()):
            if name not in self._open:
                spec = self._specs[name]
                cluster = await Cluster.open(client.wire_settings(spec.bootstrap, self._resolved(name)))
                if spec.id is not None and cluster.cluster_id != spec.id:
                    await cluster.close()
                    raise WrongCluster(f"{name} is cluster {cluster.cluster_id}, pinned is {spec.id}")
                self._open[name] = cluster
            return self._open[name]

    async def admin(self, name: str) -> Admin:
        """Only of a cluster that was found to be the right one."""
        await self.cluster(name)
        if name not in self._admins:
            settings = client.confluent_config(self._specs[name].bootstrap, self._resolved(name))
            self._admins[name] = await asyncio.to_thread(Admin, settings)
        return self._admins[name]

    async def listing(self, name: str) -> dict[str, Topic]:
        """All topics, asked for now."""
        cluster = await self.cluster(name)
        now = asyncio.get_running_loop().time()
        at, known = self._listings.get(name, (-1.0, {}))
        if at >= 0 and now - at < _LISTING_S:
            return known
        found = await cluster.all_topics()
        self._listings[name] = (asyncio.get_running_loop().time(), found)
        return found

    def listed(self) -> dict[str, dict[str, Topic]]:
        """The newest listings there are, by cluster."""
        return {name: topics for name, (_, topics) in self._listings.items()}

    def stale(self, name: str) -> None:
        """Something was changed there: the next listing is asked for."""
        self._listings.pop(name, None)

    async def close(self) -> None:
        for cluster in self._open.values():
            await cluster.close()

    def _resolved(self, name: str) -> dict[str, str]:
        spec = named(self._specs[name], f"repl.{self._job}.driver")
        return client.resolve(spec.client, self._environ, lambda path: Path(path).read_text())
