"""Inspects every cluster of a topology once: all concurrently, each with its own failures.

The order matters. Log starts are read before the ledger and end offsets after it, so that a partition that
advances meanwhile never seems to have lost anything.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self

from runtime.audit.ledger import OPEN_WITHIN_S, AuditFailure, as_audit_failure, connect, unanswered
from runtime.audit.status.facts import (
    ClusterFacts,
    LedgerFacts,
    StatusRequest,
    StatusSnapshot,
    TopicFacts,
)
from runtime.audit.status.jobs import doubtful
from runtime.audit.status.join import join
from runtime.audit.status.ledger_reader import StatusLedgerReader
from runtime.audit.status.retention import RetentionReader
from runtime.audit.status.traffic import TrafficReader
from runtime.batch import Batch, BatchFailure, records, walk
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.records.ledger import PartitionKey, Progress, UnreadableRecord
from runtime.contract.results.status import ReplicationStatus
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode, WireError
from runtime.kafka.fetch import fetch_loaded
from runtime.kafka.leaders import UNANSWERED
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.metadata import TopicMetadata
from runtime.kafka.protocol.offsets import EARLIEST, LATEST, ListedOffset
from runtime.kafka.queries import list_offsets
from runtime.kafka.timing import in_time, now_ms

_RETRY_WITHIN_S = 0.5
# Partitions whose first uncopied record is read in one inspection: a batch may have a megabyte.
_MOST_READ = 50
_READ_AT_ONCE = 8
_MIN_FETCH_BYTES = 1  # brokers send the first batch whole, however small the limit is


class ReconnectingCluster:
    """Holds the connection to a cluster.

    Call `cluster` for each use, `drop` after a failure, and `close` at the end.
    """

    def __init__(self, reach: ClusterEndpoint) -> None:
        self.reach = reach
        self._cluster: KafkaCluster | None = None
        self._opening: asyncio.Task[KafkaCluster] | None = None
        self._why = ""

    async def cluster(self, within: float) -> KafkaCluster:
        """Returns the open cluster. Raises AuditFailure.

        An attempt that takes longer continues in the background, for the next call.
        """
        if self._cluster is not None:
            return self._cluster
        if self._opening is None:
            self._opening = asyncio.ensure_future(connect(self.reach, OPEN_WITHIN_S))
        # A cluster that did not answer before gets a short timeout, so that it does not delay the others.
        done, _ = await asyncio.wait([self._opening], timeout=_RETRY_WITHIN_S if self._why else within)
        if not done:
            self._why = self._why or f"no answer within {within:g} s"
            raise AuditFailure(self.reach.cluster, self._why, unanswered(self.reach.cluster))
        opening, self._opening = self._opening, None
        try:
            self._cluster = opening.result()
        except AuditFailure as failure:
            self._why = failure.why
            raise
        self._why = ""
        return self._cluster

    async def drop(self) -> None:
        """Closes the cluster; the next call of `cluster` opens it again."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            await cluster.close()

    async def close(self) -> None:
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
            await asyncio.wait([opening])
            if not opening.cancelled() and opening.exception() is None:
                await opening.result().close()
        await self.drop()


DEFAULT_S = 10.0
AGAIN_S = 2.0  # longer than the interval of heartbeats
_HEARTBEAT_POLL_S = 0.3


async def read_status(
    request: StatusRequest,
    over_s: float = 1.0,
    within_s: float = DEFAULT_S,
    *,
    retention: bool = False,
    every_offset: bool = False,
    until_alive: Collection[str] = (),
) -> ReplicationStatus:
    """Inspects all clusters, reads the ledgers twice, at least `over_s` apart, and derives the status.

    A job or a standby that seems dead is inspected once more before the status reports it as dead.
    `over_s` ends early once each job of `until_alive` has sent another heartbeat.
    """
    async with StatusReader(request, within_s, retention=retention, every_offset=every_offset) as reader:
        if over_s:
            await reader.read_ledgers()
        return await reader.status(over_s, certain=over_s < AGAIN_S, until_alive=until_alive)


class _ClusterInspection:
    """Inspects one cluster once, in steps; `facts` holds what it has read so far.

    `sources` and `mirrors` are the partitions that flows copy from it and to it. `written` is the offset up
    to which each must have records, as the ledgers say. A cluster that fails a step is skipped in the later
    ones, and opened again at the next inspection.
    """

    def __init__(
        self,
        site: ReconnectingCluster,
        within_s: float,
        retention: RetentionReader | None,
        traffic: TrafficReader | None,
        *,
        every_offset: bool,
    ) -> None:
        self.name = site.reach.cluster
        self.facts = ClusterFacts(self.name, answers=False)
        self.sources: set[TopicPartition] = set()
        self.mirrors: set[TopicPartition] = set()
        self.copied: set[str] = set()
        self.written: dict[TopicPartition, int] = {}
        self.cluster: KafkaCluster | None = None
        self.listed: Mapping[str, TopicMetadata] = {}
        self._site = site
        self._within_s = site.reach.within(within_s)
        self._retention, self._traffic = retention, traffic
        self._every_offset = every_offset

    @property
    def part_limit_s(self) -> float:
        """Returns the time limit of a part of a step, so that results of other partitions are not lost."""
        return self._within_s * 0.8

    async def open(self) -> None:
        try:
            self.cluster = await self._site.cluster(self._within_s)
        except AuditFailure as failure:
            self.facts.why = failure.why
        else:
            self.facts.answers, self.facts.id = True, self.cluster.cluster_id

    async def step(self, work: Callable[[KafkaCluster], Coroutine[Any, Any, None]]) -> None:
        """Runs one step of the inspection, if the cluster has answered so far."""
        if self.cluster is None:
            return
        try:
            with as_audit_failure(self.name):
                await in_time(work(self.cluster), self._within_s, f"asking {self.name}")
        except AuditFailure as failure:
            self.facts.why = failure.why
            # A broker that returns an error, a record of another version or damaged ones is up.
            if not isinstance(failure.__cause__, BrokerError | UnreadableRecord | BatchFailure):
                self.cluster, self.facts.answers = None, False
                await self._site.drop()

    async def list_topics(self, cluster: KafkaCluster) -> None:
        self.listed = await cluster.all_topics()
        self.facts.topics = {
            name: TopicFacts(topic.id, len(topic.partitions))
            for name, topic in self.listed.items()
            if topic.error is ErrorCode.NONE
        }

    def expect(self, at: TopicPartition, end: int) -> None:
        self.written[at] = max(self.written.get(at, 0), end)

    async def read_starts(self, cluster: KafkaCluster) -> None:
        self.facts.starts = await self._offsets(cluster, self.sources, EARLIEST, Isolation.READ_UNCOMMITTED)

    async def read_retention(self, cluster: KafkaCluster) -> None:
        if self._retention is not None:
            self.facts.retention = await self._retention.read(cluster, self.copied, self.part_limit_s)

    async def read_traffic(self, cluster: KafkaCluster) -> None:
        if self._traffic is not None:
            self.facts.traffic = await self._traffic.read(cluster, self.listed, self.part_limit_s)

    async def read_ends(self, cluster: KafkaCluster) -> None:
        wanted = self.sources | self.mirrors
        late = (wanted if self._every_offset else self.sources) - self.facts.starts.keys()
        starts, self.facts.ends, self.facts.highs = await asyncio.gather(
            self._offsets(cluster, late, EARLIEST, Isolation.READ_UNCOMMITTED),
            self._offsets(cluster, wanted, LATEST, Isolation.READ_COMMITTED),
            self._highs(cluster, wanted if self._every_offset else ()),
        )
        self.facts.starts = {**self.facts.starts, **starts}
        if not self._every_offset:
            shorter = [at for at, end in self.facts.ends.items() if end < self.written.get(at, 0)]
            self.facts.highs = await self._highs(cluster, shorter)

    async def _highs(
        self, cluster: KafkaCluster, wanted: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        return await self._offsets(cluster, wanted, LATEST, Isolation.READ_UNCOMMITTED)

    async def _offsets(
        self, cluster: KafkaCluster, wanted: Iterable[TopicPartition], at: int, isolation: Isolation
    ) -> dict[TopicPartition, int]:
        """Returns the offsets of partitions whose leader answers.

        Where no leader answers, the cluster counts as failed.
        """
        timestamps = dict.fromkeys(wanted, at)
        if not timestamps:
            return {}
        answers = await list_offsets(cluster, timestamps, isolation, self.part_limit_s)
        offsets = {key: answer.offset for key, answer in answers.items() if isinstance(answer, ListedOffset)}
        if not offsets and UNANSWERED & set(answers.values()):
            raise AuditFailure(self.name, "no leader answers", unanswered(self.name))
        return offsets

    async def read_first_missing(self, progress: Mapping[PartitionKey, Progress]) -> None:
        """Reads the timestamps of the first uncopied records of the partitions that seem oldest.

        The lag of a flow is that of its oldest uncopied record. The timestamp is one estimate of several: a
        partition that can't be read is left out.
        """
        if (cluster := self.cluster) is None:
            return
        lagging = {
            key: made for key, made in progress.items() if made.position < self.facts.ends.get(key.at, 0)
        }
        oldest = sorted(lagging, key=lambda key: lagging[key].last_timestamp)[:_MOST_READ]
        turns, timestamps = asyncio.Semaphore(_READ_AT_ONCE), dict[PartitionKey, int]()

        async def read(key: PartitionKey) -> None:
            async with turns:
                with suppress(WireError, BatchFailure):
                    reading = _first_timestamp(cluster, key.at, lagging[key].position)
                    timestamp = await in_time(reading, self._within_s, "reading a record")
                    if timestamp is not None and timestamp >= 0:
                        timestamps[key] = timestamp

        await asyncio.gather(*map(read, oldest))
        self.facts.first_missing = timestamps


async def _first_timestamp(cluster: KafkaCluster, at: TopicPartition, position: int) -> int | None:
    """Returns the timestamp of the first record from a position on. Raises WireError, BatchFailure."""
    answer = await fetch_loaded(cluster, at, position, _MIN_FETCH_BYTES, "look")
    behind = (member for member in walk(answer.records, at).sets if member.next_offset > position)
    first = next(behind, None)
    if isinstance(first, Batch) and first.first_timestamp is not None:
        return first.first_timestamp
    some = records(first, at) if first is not None else ()
    return next((record.timestamp for record in some if record.offset >= position), None)


class StatusReader:
    """Inspects clusters repeatedly. It keeps its connections and what it read: a second inspection costs
    little.

    With `times` it reads the timestamp of the first uncopied record, from which lag in seconds is computed.
    With `retention` it reads how long sources keep records, from which the time to loss is computed. With
    `traffic` it measures what is written to each cluster, over all its topics. With `every_offset` it reads
    the high watermark of each partition and the log start of each mirror too. Without it, a high watermark
    is read only where it decides the state: where the last stable offset is below what the ledger says.
    """

    def __init__(
        self,
        request: StatusRequest,
        within_s: float,
        *,
        times: bool = True,
        retention: bool = False,
        traffic: bool = False,
        every_offset: bool = False,
    ) -> None:
        self.request = request
        self._every_offset = every_offset
        self._times = times
        self.within_s = within_s
        names = {*request.sources, *request.destinations}
        self._sites = {name: ReconnectingCluster(request.clusters[name]) for name in sorted(names)}
        self._ledger_readers: dict[str, StatusLedgerReader] = {}
        self._retention = {name: RetentionReader() for name in request.sources if retention}
        self._traffic = {name: TrafficReader() for name in self._sites if traffic}
        self._ledgers_read_s = -math.inf
        self._before: StatusSnapshot | None = None  # the previous inspection, from which rates are computed

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for site in self._sites.values():
            await site.close()

    async def status(
        self, over_s: float = 0.0, *, certain: bool = False, until_alive: Collection[str] = ()
    ) -> ReplicationStatus:
        """Inspects all clusters and derives the status, with rates since the inspection before.

        Reading the ledgers begins at least `over_s` after it began before, or once each job of `until_alive`
        has sent another heartbeat since. With `certain`, a job that seems dead is inspected once more.
        """
        before, now = self._before, await self._read(over_s, until_alive=until_alive)
        if certain and any(
            doubtful(ledger, now.at_ms, self.request.standbys) for ledger in now.ledgers.values()
        ):
            before = before or now
            await asyncio.sleep(AGAIN_S)
            now = await self._read()
        self._before = now
        return join(self.request, now, before)

    async def read_ledgers(self) -> None:
        """Reads only the ledgers, which is all that the next status needs of an earlier inspection."""
        clusters = self._inspections()
        await asyncio.gather(*(cluster.open() for cluster in clusters.values()))
        self._before = StatusSnapshot(now_ms(), {}, await self._ledgers(clusters))

    async def _read(self, over_s: float = 0.0, *, until_alive: Collection[str] = ()) -> StatusSnapshot:
        async def begin(cluster: _ClusterInspection) -> None:
            await cluster.open()
            await cluster.step(cluster.list_topics)

        clusters = self._inspections()
        await asyncio.gather(*map(begin, clusters.values()))
        for flow in self.request.flows:
            source = clusters[flow.source]
            topics = source.facts.topics or {}
            for topic in self.request.selected(flow, topics):
                source.sources |= {TopicPartition(topic, at) for at in range(topics[topic].partitions)}
                source.copied.add(topic)
        await asyncio.gather(
            *(cluster.step(cluster.read_starts) for cluster in clusters.values()),
            *(cluster.step(cluster.read_retention) for cluster in clusters.values()),
        )
        due_s, loop = self._ledgers_read_s + over_s, asyncio.get_running_loop()
        if not until_alive:
            await asyncio.sleep(due_s - loop.time())
        ledgers = await self._ledgers(clusters)
        while loop.time() < due_s and not self._moved(until_alive, ledgers):
            await asyncio.sleep(min(_HEARTBEAT_POLL_S, due_s - loop.time()))
            ledgers = await self._ledgers(clusters)
        self._select_mirrors(clusters, ledgers)
        await asyncio.gather(*(cluster.step(cluster.read_ends) for cluster in clusters.values()))
        if self._times:
            progress: dict[str, dict[PartitionKey, Progress]] = {name: {} for name in clusters}
            for flow in self.request.flows:
                progress[flow.source].update(_progress(ledgers, flow.destination, flow.name))
            await asyncio.gather(
                *(clusters[name].read_first_missing(copied) for name, copied in progress.items())
            )
        await asyncio.gather(*(cluster.step(cluster.read_traffic) for cluster in clusters.values()))
        facts = {name: cluster.facts for name, cluster in clusters.items()}
        return StatusSnapshot(now_ms(), facts, ledgers)

    def _moved(self, jobs: Collection[str], ledgers: Mapping[str, LedgerFacts]) -> bool:
        """Returns whether each of the jobs has sent a heartbeat since the inspection before."""
        assert self._before is not None
        before, now = _heartbeats(self._before.ledgers), _heartbeats(ledgers)
        return all(job in now and job in before and now[job] != before[job] for job in jobs)

    def _inspections(self) -> dict[str, _ClusterInspection]:
        return {
            name: _ClusterInspection(
                site,
                self.within_s,
                self._retention.get(name),
                self._traffic.get(name),
                every_offset=self._every_offset,
            )
            for name, site in self._sites.items()
        }

    def _select_mirrors(
        self, clusters: Mapping[str, _ClusterInspection], ledgers: Mapping[str, LedgerFacts]
    ) -> None:
        for flow in self.request.flows:
            source, destination = clusters[flow.source], clusters[flow.destination]
            topics = destination.facts.topics or {}
            for key, made in _progress(ledgers, flow.destination, flow.name).items():
                source.expect(key.at, made.position)
                mirror = topics.get(made.destination_topic)
                if mirror is not None and key.partition < mirror.partitions:
                    at = TopicPartition(made.destination_topic, key.partition)
                    destination.mirrors.add(at)
                    destination.expect(at, made.destination_end)

    async def _ledgers(self, clusters: Mapping[str, _ClusterInspection]) -> dict[str, LedgerFacts]:
        """Reads all ledgers, as they are now."""
        flows = {name: [flow.name for flow in self.request.into(name)] for name in self.request.destinations}
        refreshed: dict[str, StatusLedgerReader] = {}
        facts: dict[str, LedgerFacts] = {}

        async def refresh(name: str, cluster: KafkaCluster) -> None:
            reader = self._ledger_readers.get(name)
            if reader is None or reader.cluster is not cluster:
                reader = self._ledger_readers[name] = StatusLedgerReader(cluster)
            await reader.refresh(flows[name], clusters[name].part_limit_s)
            refreshed[name] = reader

        async def decode(name: str, _: KafkaCluster) -> None:
            facts[name] = refreshed[name].facts(flows[name])

        self._ledgers_read_s = asyncio.get_running_loop().time()
        await asyncio.gather(*(clusters[name].step(partial(refresh, name)) for name in flows))
        await asyncio.gather(*(clusters[name].step(partial(decode, name)) for name in refreshed))
        return facts


def _heartbeats(ledgers: Mapping[str, LedgerFacts]) -> dict[str, int]:
    """Returns when each job that is not stopped sent its last heartbeat."""
    return {
        name: status.at_ms
        for ledger in ledgers.values()
        for name, status in ledger.reported.jobs.items()
        if status.state != "stopped"
    }


def _progress(
    ledgers: Mapping[str, LedgerFacts], destination: str, flow: str
) -> Mapping[PartitionKey, Progress]:
    ledger = ledgers.get(destination)
    return ledger.progress.get(flow, {}) if ledger is not None else {}
