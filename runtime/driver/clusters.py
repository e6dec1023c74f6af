"""This module keeps the clients of the clusters of a job, and opens its destination.

The clusters are those of the spec that the job was started with. No record adds a cluster or changes how a
cluster is reached.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct, field

from runtime.contract.records import job_status
from runtime.contract.records.job_status import JobStatusTable, StatusKey
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec import naming, topic_settings
from runtime.contract.spec.acls import AclRule
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import JobExit, JobSpec
from runtime.contract.spec.schemas import RegistrySpec
from runtime.contract.spec.topic_settings import InternalTopic
from runtime.driver.subjects import SubjectsReader
from runtime.driver.topics.admin import TopicAdmin, topic_rules
from runtime.kafka.cluster import KafkaCluster, UnknownCluster, named, opened
from runtime.kafka.errors import BrokerError, ConnectionFailure, ErrorCode, WireError
from runtime.kafka.protocol.changes import NewTopic
from runtime.kafka.protocol.metadata import TopicMetadata
from runtime.kafka.timing import Shared
from runtime.ledger.records import InternalTopicScan
from runtime.schemas.client import SchemaRegistry
from runtime.slot.log import log_driver_message

_LISTING_S = 0.5  # flows that list the topics of the same cluster within this time share one response
_LISTING_TIMES, LISTING_MAX_S = 20, 30.0  # of the time that the request took


class CountedTopics(Struct, frozen=True):
    """The number of partitions of each topic in a listing.

    Each listing of a cluster has an object of its own. `partitions` is the same object until a topic, or its
    number of partitions, changes.
    """

    partitions: Mapping[str, int]


class _Listing(Struct):
    """A listing of all topics. `fresh_until` is by the event loop's time."""

    topics: Mapping[str, TopicMetadata]
    fresh_until: float
    counted: CountedTopics | None = None


class _ClusterEntry(Struct, eq=False):
    """An entry holds the spec of a cluster and the clients that are open for it."""

    spec: ClusterSpec
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    cluster: KafkaCluster | None = None
    admin: TopicAdmin | None = None
    listing: _Listing | None = None
    topics: Mapping[str, TopicMetadata] | None = None  # of which `counts` are
    counts: dict[str, int] = field(default_factory=dict)
    reading: Shared[_Listing] = field(default_factory=Shared)


class DriverClusters:
    """Owns the driver's connections to all clusters of the job and opens them on demand."""

    def __init__(
        self,
        job: str,
        specs: Mapping[str, ClusterSpec],
        environ: Mapping[str, str],
        registries: Mapping[str, RegistrySpec] = MappingProxyType({}),
    ) -> None:
        client_id = f"repl.{job}.driver"
        self._environ = environ
        self._registries = {name: SchemaRegistry(spec, environ) for name, spec in registries.items()}
        self.subjects = SubjectsReader(self.schema_registry)
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
        """Returns what changes the topics of a cluster after its cluster id was checked.

        Raises WireError, ClientSettingsError.
        """
        entry = self._entry(name)
        cluster = await self._cluster(name, entry)
        if entry.admin is None:
            entry.admin = TopicAdmin(cluster)
        return entry.admin

    def schema_registry(self, name: str) -> SchemaRegistry:
        """Returns the client of a cluster's schema registry, which connects with its first request.

        Raises UnknownCluster for a cluster without one.
        """
        if name not in self._registries:
            raise UnknownCluster(name)
        return self._registries[name]

    async def topic_rules(self, name: str) -> set[AclRule] | None:
        """Returns all rules on topics of a cluster, or None where it has no authorizer.

        Raises WireError, ClientSettingsError.
        """
        return await topic_rules(name, await self.cluster(name))

    async def topic_rules_of_each_broker(self, name: str) -> set[AclRule]:
        """Returns the rules on topics that any broker of a cluster knows; silent brokers are left out.

        A broker may lag behind the others. Raises WireError, ClientSettingsError.
        """
        cluster = await self.cluster(name)
        answers = await asyncio.gather(
            *(topic_rules(name, cluster, broker) for broker in cluster.brokers), return_exceptions=True
        )
        rules: set[AclRule] = set()
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, ConnectionFailure):
                raise answer
            if isinstance(answer, set):
                rules |= answer
        return rules

    async def listing(self, name: str) -> Mapping[str, TopicMetadata]:
        """Returns all topics of a cluster, at most half a second old. Concurrent callers share one request.

        The response of a large cluster is used for 20 times as long as its request took, at most 30 seconds:
        the cluster would be listed all the time otherwise. Raises WireError, ClientSettingsError.
        """
        return (await self._listing(name)).topics

    async def counted(self, name: str) -> CountedTopics:
        """Returns the number of partitions of each topic that `listing` returns without an error."""
        listing = await self._listing(name)
        if listing.counted is None:
            entry = self._entry(name)
            if listing.topics is not entry.topics:
                entry.topics = listing.topics
                counts = {
                    topic: len(metadata.partitions)
                    for topic, metadata in listing.topics.items()
                    if metadata.error is ErrorCode.NONE
                }
                if counts != entry.counts:
                    entry.counts = counts
            listing.counted = CountedTopics(entry.counts)
        return listing.counted

    async def _listing(self, name: str) -> _Listing:
        entry = self._entry(name)
        cluster = await self._cluster(name, entry)
        loop = asyncio.get_running_loop()
        if entry.listing is not None and loop.time() < entry.listing.fresh_until:
            return entry.listing
        reading = entry.reading

        async def read() -> _Listing:
            began = loop.time()
            topics = await cluster.all_topics()
            ended = loop.time()
            valid_s = min(max(_LISTING_S, _LISTING_TIMES * (ended - began)), LISTING_MAX_S)
            listing = _Listing(topics, ended + valid_s)
            if entry.reading is reading:  # no change was made meanwhile
                entry.listing = listing
            return listing

        return await reading.run(read)

    def listed(self) -> dict[str, Mapping[str, TopicMetadata]]:
        """Returns the newest listing of each cluster that was listed, by cluster name."""
        return {
            name: entry.listing.topics for name, entry in self._entries.items() if entry.listing is not None
        }

    def invalidate(self, name: str) -> None:
        """Discards the listing of a cluster after a change there, so that the next call reads it again."""
        entry = self._entry(name)
        entry.listing, entry.reading = None, Shared()

    async def close(self) -> None:
        """Closes all clients."""
        for registry in self._registries.values():
            registry.close()
        await _closed(self._entries.values())


async def _closed(clusters: Collection[_ClusterEntry]) -> None:
    await asyncio.gather(*(entry.cluster.close() for entry in clusters if entry.cluster is not None))


_LEADERS_TIMEOUT_S = 20.0
_POLL_S = 0.05


async def open_destination(spec: JobSpec, clusters: DriverClusters) -> KafkaCluster:
    """Opens the destination cluster, where the internal topics are created that do not exist yet.

    Raises WireError, ClientSettingsError; the caller then retries.
    """
    await ensure(clusters, spec.destination, topic_settings.at_destination(), spec)
    return await clusters.cluster(spec.destination)


async def ensure(clusters: DriverClusters, name: str, topics: Sequence[InternalTopic], spec: JobSpec) -> None:
    """Creates the internal topics that do not exist yet; existing topics stay unchanged.

    Raises WireError, ClientSettingsError.
    """
    cluster = await clusters.cluster(name)
    listed = await cluster.topics([topic.name for topic in topics], fresh=True)
    missing = [topic for topic in topics if listed[topic.name].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    if not missing:
        return
    brokers = len(cluster.brokers)
    wanted = [
        NewTopic(topic.name, topic.partitions, *topic.durable(spec.internal, brokers)) for topic in missing
    ]
    refused = await (await clusters.admin(name)).create(wanted)
    if refused:
        first, why = next(iter(refused.items()))
        raise WireError(f"{first} can't be made at {name}: {why}")
    await await_leaders(cluster, {topic.name: topic.partitions for topic in missing})


async def await_leaders(cluster: KafkaCluster, partitions: Mapping[str, int]) -> None:
    """Waits until each topic has so many partitions with a leader. Raises WireError, also after 20 s."""
    deadline = asyncio.get_running_loop().time() + _LEADERS_TIMEOUT_S
    waiting = dict(partitions)
    while waiting:
        for name, topic in (await cluster.topics(waiting, fresh=True)).items():
            led = sum(partition.leader >= 0 for partition in topic.partitions.values())
            if topic.error is ErrorCode.NONE and led >= waiting[name]:
                del waiting[name]
        if waiting and asyncio.get_running_loop().time() > deadline:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, ", ".join(sorted(waiting)[:5]))
        if waiting:
            await asyncio.sleep(_POLL_S)


async def read_reported(cluster: KafkaCluster) -> JobStatusTable:
    """Returns what the jobs of a destination last reported. Raises WireError."""
    scan, reported = InternalTopicScan(cluster, naming.STATUS, 0), JobStatusTable()
    await scan.refresh()
    reported.update(scan.fold.items())
    for job, (_, why) in reported.unreadable.items():
        log_driver_message(f"the last heartbeat of {job} was skipped: {why}")
    return reported


def last_rates(reported: JobStatusTable, job: str) -> dict[PartitionKey, int]:
    """Returns the bytes a second of partitions by the newest report of each slot; the latest one counts."""
    reports = [report for (of_job, _), report in reported.reports.items() if of_job == job]
    reports.sort(key=lambda report: report.at_ms)
    return job_status.rates_of(partition for report in reports for partition in report.partitions)


_WATCH_S = 3.0  # heartbeats come once a second; Spark takes longer to start
_WATCH_POLL_S = 0.25
_PROC = Path("/proc")


async def exit_after_restart(cluster: KafkaCluster, job: str) -> JobExit | None:
    """Returns how a restarted driver must end because the job was stopped or runs elsewhere, or None.

    While a machine was away, a standby may have started the job on another one. A driver that its supervisor
    restarted must not fence a healthy driver there, and it must not bring back a job that repl stopped
    meanwhile. A driver that a command or a standby starts fences any other one.

    It waits only where the last heartbeat may be of a driver that is still alive. Raises WireError.
    """
    scan, reported = InternalTopicScan(cluster, naming.STATUS, 0), JobStatusTable()
    await scan.refresh()
    reported.update(scan.fold.news())
    key = job_status.encode_key(StatusKey("job", job))
    seen, last = scan.fold.offset(key), reported.jobs.get(job)
    if seen < 0:
        return None
    if last is not None and last.stop_requested:
        log_driver_message(f"the job {job} was stopped by repl: this driver ends")
        return JobExit.STOPPED
    if last is not None and last.host == socket.gethostname() and not (_PROC / str(last.process)).exists():
        return None  # it ran on this machine, and has ended
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _WATCH_S
    while loop.time() < deadline:
        await asyncio.sleep(_WATCH_POLL_S)
        await scan.refresh()
        if scan.fold.offset(key) != seen:
            reported.update(scan.fold.news())
            now = reported.jobs.get(job)
            where = f"as {now.where}" if now is not None else "by another release"
            log_driver_message(f"the job {job} runs {where} now: this driver ends")
            return JobExit.FENCED
    return None
