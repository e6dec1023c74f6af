"""This module keeps one wire client and one admin client for each cluster of a job.

The clusters are those of the spec that the job was started with. No record adds a cluster or changes how a
cluster is reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from runtime.contract.client.secrets import ClientSecrets
from runtime.contract.spec.jobspec import ClusterSpec
from runtime.driver.topics.admin import TopicAdmin
from runtime.kafka.cluster import KafkaCluster, UnknownCluster, named, opened
from runtime.kafka.confluent import admin_client
from runtime.kafka.protocol.metadata import TopicMetadata

_LISTING_S = 0.5  # flows that list the topics of the same cluster within this time share one response


@dataclass(eq=False, slots=True)
class _ClusterEntry:
    """An entry holds the spec of a cluster and the clients that are open for it."""

    spec: ClusterSpec
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    cluster: KafkaCluster | None = None
    admin: TopicAdmin | None = None
    listing: tuple[float, dict[str, TopicMetadata]] | None = None


class DriverClusters:
    """A DriverClusters owns the driver's connections to all clusters of the job and opens them on demand."""

    def __init__(self, job: str, specs: Mapping[str, ClusterSpec], environ: Mapping[str, str]) -> None:
        client_id = f"repl.{job}.driver"
        self._environ = environ
        self._entries = {name: _ClusterEntry(named(spec, client_id)) for name, spec in specs.items()}

    async def close_others(self, names: Collection[str]) -> None:
        """Closes the clients of all clusters except the named ones.

        A closed cluster that is used again later is opened again.
        """
        replaced = {name: entry for name, entry in self._entries.items() if name not in names}
        self._entries |= {name: _ClusterEntry(entry.spec) for name, entry in replaced.items()}
        await _closed(replaced.values())

    async def cluster(self, name: str) -> KafkaCluster:
        """Returns the wire client of a cluster, and opens it if needed.

        Raises WireError and ClientSettingsError, and UnknownCluster for a cluster that the job was not
        started with.
        """
        return await self._cluster(name, self._entry(name))

    def _entry(self, name: str) -> _ClusterEntry:
        entry = self._entries.get(name)
        if entry is None:
            raise UnknownCluster(name)
        return entry

    async def _cluster(self, name: str, entry: _ClusterEntry) -> KafkaCluster:
        async with entry.opening:
            if entry.cluster is None:
                entry.cluster = await opened(name, entry.spec, self._environ)
            return entry.cluster

    async def admin(self, name: str) -> TopicAdmin:
        """Returns the admin client of a cluster after its cluster id was checked.

        Raises WireError, ClientSettingsError.
        """
        entry = self._entry(name)
        await self._cluster(name, entry)
        if entry.admin is None:
            secrets = ClientSecrets(self._environ)
            settings = secrets.resolve(entry.spec.bootstrap, entry.spec.client)
            command = secrets.token_command(name)
            client = await asyncio.to_thread(admin_client, entry.spec.bootstrap, settings, command)
            entry.admin = TopicAdmin(client)
        return entry.admin

    async def listing(self, name: str) -> dict[str, TopicMetadata]:
        """Returns all topics of a cluster, at most half a second old.

        Raises WireError, ClientSettingsError.
        """
        entry = self._entry(name)
        cluster = await self._cluster(name, entry)
        now = asyncio.get_running_loop().time()
        if entry.listing is not None and now - entry.listing[0] < _LISTING_S:
            return entry.listing[1]
        found = await cluster.all_topics()
        entry.listing = (asyncio.get_running_loop().time(), found)
        return found

    def listed(self) -> dict[str, dict[str, TopicMetadata]]:
        """Returns the newest listing of each cluster that was listed, by cluster name."""
        return {name: entry.listing[1] for name, entry in self._entries.items() if entry.listing is not None}

    def invalidate(self, name: str) -> None:
        """Discards the listing of a cluster after a change there, so that the next call reads it again."""
        self._entry(name).listing = None

    async def close(self) -> None:
        """Closes all clients."""
        await _closed(self._entries.values())


async def _closed(clusters: Collection[_ClusterEntry]) -> None:
    for entry in clusters:
        if entry.cluster is not None:
            await entry.cluster.close()
