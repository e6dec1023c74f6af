"""The clusters of a job as its driver sees them: one wire client and one admin client each, kept.

They are those of the spec that the job was started with. No record adds one or changes how one is reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from runtime.contract.client.secrets import ClientSecrets
from runtime.contract.spec.jobspec import ClusterSpec
from runtime.driver.topics.admin import Admin
from runtime.kafka.cluster import Cluster
from runtime.kafka.confluent import admin_client
from runtime.kafka.protocol.metadata import Topic
from runtime.kafka.spec_clusters import UnknownCluster, named, opened

_LISTING_S = 0.5  # flows that ask for the same cluster's topics at the same time share one answer


@dataclass(eq=False, slots=True)
class _Known:
    """A cluster with what is open of it."""

    spec: ClusterSpec
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    cluster: Cluster | None = None
    admin: Admin | None = None
    listing: tuple[float, dict[str, Topic]] | None = None


class Clusters:
    def __init__(self, job: str, specs: Mapping[str, ClusterSpec], environ: Mapping[str, str]) -> None:
        client_id = f"repl.{job}.driver"
        self._environ = environ
        self._known = {name: _Known(named(spec, client_id)) for name, spec in specs.items()}

    async def close_others(self, names: Collection[str]) -> None:
        """Closes what is open of all clusters but these; one that is used again later is opened anew."""
        former = {name: known for name, known in self._known.items() if name not in names}
        self._known |= {name: _Known(known.spec) for name, known in former.items()}
        await _closed(former.values())

    async def cluster(self, name: str) -> Cluster:
        """Raises WireError, ClientSettingsError; UnknownCluster for one that the job was not started with."""
        return await self._cluster(name, self._of(name))

    def _of(self, name: str) -> _Known:
        known = self._known.get(name)
        if known is None:
            raise UnknownCluster(name)
        return known

    async def _cluster(self, name: str, known: _Known) -> Cluster:
        async with known.opening:
            if known.cluster is None:
                known.cluster = await opened(name, known.spec, self._environ)
            return known.cluster

    async def admin(self, name: str) -> Admin:
        """Only of a cluster that was found to be the right one. Raises WireError, ClientSettingsError."""
        known = self._of(name)
        await self._cluster(name, known)
        if known.admin is None:
            secrets = ClientSecrets(self._environ)
            settings = secrets.resolve(known.spec.bootstrap, known.spec.client)
            command = secrets.token_command(name)
            opened_by = await asyncio.to_thread(admin_client, known.spec.bootstrap, settings, command)
            known.admin = Admin(opened_by)
        return known.admin

    async def listing(self, name: str) -> dict[str, Topic]:
        """All topics, asked for now."""
        known = self._of(name)
        cluster = await self._cluster(name, known)
        now = asyncio.get_running_loop().time()
        if known.listing is not None and now - known.listing[0] < _LISTING_S:
            return known.listing[1]
        found = await cluster.all_topics()
        known.listing = (asyncio.get_running_loop().time(), found)
        return found

    def listed(self) -> dict[str, dict[str, Topic]]:
        """The newest listings there are, by cluster."""
        return {name: known.listing[1] for name, known in self._known.items() if known.listing is not None}

    def stale(self, name: str) -> None:
        """Something was changed there: the next listing is asked for."""
        self._of(name).listing = None

    async def close(self) -> None:
        await _closed(self._known.values())


async def _closed(clusters: Collection[_Known]) -> None:
    for known in clusters:
        if known.cluster is not None:
            await known.cluster.close()
