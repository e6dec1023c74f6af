"""Inspects every cluster of a topology once: all concurrently, each with its own failures.

The order matters. Log starts are read before the ledger and end offsets after it, so that a partition that
advances meanwhile never seems to have lost anything.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import NamedTuple, Self

from msgspec import Struct, field

from runtime.audit.ledger import (
    OPEN_WITHIN_S,
    AuditFailure,
    ClusterAccess,
    as_audit_failure,
    connect,
    unanswered,
)
from runtime.audit.status.facts import (
    ClusterFacts,
    ClusterTraffic,
    LedgerFacts,
    StatusRequest,
    StatusSnapshot,
    TopicFacts,
)
from runtime.audit.status.first_missing import MOST, first_missing
from runtime.audit.status.join import join
from runtime.audit.status.ledger_reader import ReadMoment, StatusLedgerReader, moment_of_now
from runtime.audit.status.retention import RetentionReader
from runtime.audit.status.states import doubtful
from runtime.audit.status.traffic import TrafficReader
from runtime.batch.failure import BatchFailure
from runtime.contract.records.ledger import PartitionKey, Progress, UnreadableRecord
from runtime.contract.views.status_view import StatusView
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.metadata import TopicMetadata
from runtime.kafka.protocol.offsets import EARLIEST, LATEST, ListedOffset, TopicPartition
from runtime.kafka.queries import list_offsets
from runtime.kafka.timing import in_time

_RETRY_WITHIN_S = 0.5


class ReconnectingCluster:
    """Holds the connection to a cluster.

    Call `cluster` for each use, `drop` after a failure, and `close` at the end.
    """

    def __init__(self, reach: ClusterAccess) -> None:
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
            raise AuditFailure(self.reach.name, self._why, unanswered(self.reach.name))
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


async def read_status(
    asked: StatusRequest,
    over_s: float = 1.0,
    within_s: float = DEFAULT_S,
    *,
    retention: bool = False,
    every_offset: bool = False,
) -> StatusView:
    """Inspects all clusters, reads the ledgers twice, at least `over_s` apart, and derives the status.

    A job or a standby that seems dead is inspected once more before the status reports it as dead.
    """
    async with StatusReader(asked, within_s, retention=retention, every_offset=every_offset) as looker:
        first = await looker.read_ledgers() if over_s else None
        second = await looker.read(over_s)
        if any(doubtful(ledger, second.at_ms, asked.standbys) for ledger in second.ledgers.values()):
            first = first or second
            await asyncio.sleep(AGAIN_S)
            second = await looker.read()
        return join(asked, second, first)


class _Found(Struct):
    """Holds the facts that one inspection has read of a cluster so far.

    `sources` and `mirrors` are the partitions that flows copy from it and to it. `written` is the offset up
    to which each must have records, as the ledgers say.
    """

    site: ReconnectingCluster
    cluster: KafkaCluster | None = None
    why: str = ""
    topics: dict[str, TopicFacts] | None = None
    sources: set[TopicPartition] = field(default_factory=set)
    mirrors: set[TopicPartition] = field(default_factory=set)
    written: dict[TopicPartition, int] = field(default_factory=dict)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    highs: dict[TopicPartition, int] = field(default_factory=dict)
    first_missing: dict[PartitionKey, int] = field(default_factory=dict)
    copied: set[str] = field(default_factory=set)
    retention: Mapping[str, int | None] = field(default_factory=dict)
    id: str | None = None
    listed: Mapping[str, TopicMetadata] = field(default_factory=dict)
    traffic: ClusterTraffic | None = None

    def expect(self, at: TopicPartition, end: int) -> None:
        self.written[at] = max(self.written.get(at, 0), end)

    def shorter(self) -> list[TopicPartition]:
        """Returns the partitions whose last stable offset is below what the ledgers say is in their logs."""
        return [at for at, end in self.ends.items() if end < self.written.get(at, 0)]

    def facts(self) -> ClusterFacts:
        return ClusterFacts(
            name=self.site.reach.name,
            answers=self.cluster is not None,
            why=self.why,
            id=self.id,
            topics=self.topics,
            starts=self.starts,
            ends=self.ends,
            highs=self.highs,
            first_missing=self.first_missing,
            retention=self.retention,
            traffic=self.traffic,
        )


class _Ledgers(NamedTuple):
    """The facts of each ledger that could be read, and the moment of which the last of them is."""

    facts: dict[str, LedgerFacts]
    moment: ReadMoment


_Work = Callable[[_Found, KafkaCluster], Awaitable[None]]


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
        asked: StatusRequest,
        within_s: float = DEFAULT_S,
        *,
        times: bool = True,
        retention: bool = False,
        traffic: bool = False,
        every_offset: bool = False,
    ) -> None:
        self.asked = asked
        self._every_offset = every_offset
        self._times = times
        self.within_s = within_s
        names = {*asked.sources, *asked.destinations}
        self._sites = {name: ReconnectingCluster(asked.clusters[name]) for name in sorted(names)}
        self._desks: dict[str, StatusLedgerReader] = {}
        self._retention = {name: RetentionReader() for name in asked.sources if retention}
        self._traffic = {name: TrafficReader() for name in self._sites if traffic}
        self._ledgers_read_s = -math.inf

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for site in self._sites.values():
            await site.close()

    async def read_ledgers(self) -> StatusSnapshot:
        """Reads only the ledgers, which is all that `join` needs of an earlier inspection."""
        found = {name: _Found(site) for name, site in self._sites.items()}
        await asyncio.gather(*(self._open(one) for one in found.values()))
        ledgers = await self._ledgers(found)
        return StatusSnapshot(_now_ms(), {}, ledgers.facts, ledgers.moment.at_ms)

    async def read(self, over_s: float = 0.0) -> StatusSnapshot:
        """Inspects all clusters. The ledgers are read at least `over_s` after they were read before."""
        found = {name: _Found(site) for name, site in self._sites.items()}
        await asyncio.gather(*(self._listed(one) for one in found.values()))
        self._want_sources(found)
        await asyncio.gather(
            *(self._guarded(one, self._starts) for one in found.values()),
            *(self._guarded(found[name], self._kept) for name in self._retention),
        )
        await asyncio.sleep(self._ledgers_read_s + over_s - asyncio.get_running_loop().time())
        ledgers = await self._ledgers(found)
        self._want_mirrors(found, ledgers.facts)
        await asyncio.gather(*(self._guarded(one, self._ends) for one in found.values()))
        if self._times:
            await asyncio.gather(*(self._missing(name, one, ledgers.facts) for name, one in found.items()))
        await asyncio.gather(*(self._guarded(found[name], self._measured) for name in self._traffic))
        facts = {name: one.facts() for name, one in found.items()}
        return StatusSnapshot(_now_ms(), facts, ledgers.facts, ledgers.moment.at_ms)

    async def _open(self, one: _Found) -> None:
        try:
            one.cluster = await one.site.cluster(self._within(one))
            one.id = one.cluster.cluster_id
        except AuditFailure as failure:
            one.why = failure.why

    async def _listed(self, one: _Found) -> None:
        await self._open(one)
        await self._guarded(one, self._listing)

    async def _guarded(self, one: _Found, work: _Work) -> None:
        """Runs a part of the work on a cluster that answered so far.

        A cluster that fails is opened again at the next inspection.
        """
        if one.cluster is None:
            return
        name = one.site.reach.name
        try:
            with as_audit_failure(name):
                await in_time(_done(work(one, one.cluster)), self._within(one), f"asking {name}")
        except AuditFailure as failure:
            one.why = failure.why
            if not isinstance(failure.__cause__, BrokerError):  # a broker that returns an error is up
                one.cluster = None
                await one.site.drop()
        except (UnreadableRecord, BatchFailure) as failure:
            one.why = str(failure)

    async def _listing(self, one: _Found, cluster: KafkaCluster) -> None:
        topics = one.listed = await cluster.all_topics()
        one.topics = {
            name: TopicFacts(topic.id, len(topic.partitions))
            for name, topic in topics.items()
            if topic.error is ErrorCode.NONE
        }

    def _want_sources(self, found: dict[str, _Found]) -> None:
        for flow in self.asked.flows:
            topics = found[flow.source].topics or {}
            for topic in self.asked.selected(flow, topics):
                found[flow.source].sources |= _all(topic, topics[topic].partitions)
                found[flow.source].copied.add(topic)

    def _want_mirrors(self, found: dict[str, _Found], ledgers: dict[str, LedgerFacts]) -> None:
        for flow in self.asked.flows:
            source, destination = found[flow.source], found[flow.destination]
            topics = destination.topics or {}
            for key, state in _progress(ledgers, flow.destination, flow.name).items():
                source.expect(TopicPartition(key.topic, key.partition), state.position)
                mirror = topics.get(state.destination_topic)
                if mirror is not None and key.partition < mirror.partitions:
                    at = TopicPartition(state.destination_topic, key.partition)
                    destination.mirrors.add(at)
                    destination.expect(at, state.destination_end)

    async def _starts(self, one: _Found, cluster: KafkaCluster) -> None:
        one.starts = await self._offsets(one, cluster, one.sources, EARLIEST, Isolation.READ_UNCOMMITTED)

    async def _ends(self, one: _Found, cluster: KafkaCluster) -> None:
        wanted = one.sources | one.mirrors
        late = (wanted if self._every_offset else one.sources) - one.starts.keys()
        starts, one.ends, one.highs = await asyncio.gather(
            self._offsets(one, cluster, late, EARLIEST, Isolation.READ_UNCOMMITTED),
            self._offsets(one, cluster, wanted, LATEST, Isolation.READ_COMMITTED),
            self._highs(one, cluster, wanted if self._every_offset else ()),
        )
        one.starts |= starts
        if not self._every_offset:
            one.highs = await self._highs(one, cluster, one.shorter())

    async def _highs(
        self, one: _Found, cluster: KafkaCluster, wanted: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        return await self._offsets(one, cluster, wanted, LATEST, Isolation.READ_UNCOMMITTED)

    async def _offsets(
        self,
        one: _Found,
        cluster: KafkaCluster,
        wanted: Iterable[TopicPartition],
        at: int,
        isolation: Isolation,
    ) -> dict[TopicPartition, int]:
        """Returns the offsets of partitions whose leader answers.

        Where no leader answers, the cluster counts as failed.
        """
        questions = dict.fromkeys(wanted, at)
        if not questions:
            return {}
        answers = await list_offsets(cluster, questions, isolation, self._part_limit(one))
        known = {key: answer.offset for key, answer in answers.items() if isinstance(answer, ListedOffset)}
        if not known and ErrorCode.NETWORK_EXCEPTION in answers.values():
            name = one.site.reach.name
            raise AuditFailure(name, "no leader answers", unanswered(name))
        return known

    async def _kept(self, one: _Found, cluster: KafkaCluster) -> None:
        one.retention = await self._retention[one.site.reach.name].read(
            cluster, one.copied, self._part_limit(one)
        )

    async def _measured(self, one: _Found, cluster: KafkaCluster) -> None:
        reader = self._traffic[one.site.reach.name]
        one.traffic = await reader.read(cluster, one.listed, self._part_limit(one))

    async def _ledgers(self, found: dict[str, _Found]) -> _Ledgers:
        """Reads all ledgers, as they are now."""
        flows = {name: [flow.name for flow in self.asked.into(name)] for name in self.asked.destinations}
        desks: dict[str, StatusLedgerReader] = {}
        facts: dict[str, LedgerFacts] = {}

        async def refresh(one: _Found, cluster: KafkaCluster) -> None:
            name = one.site.reach.name
            desk = self._desks.get(name)
            if desk is None or desk.cluster is not cluster:
                desk = self._desks[name] = StatusLedgerReader(cluster)
            await desk.refresh(flows[name], self._part_limit(one))
            desks[name] = desk

        async def decode(one: _Found, _: KafkaCluster) -> None:
            name = one.site.reach.name
            facts[name] = desks[name].facts(flows[name])

        await asyncio.gather(*(self._guarded(found[name], refresh) for name in flows))
        await asyncio.gather(*(self._guarded(found[name], decode) for name in desks))
        moment = max((desk.moment for desk in desks.values()), default=moment_of_now())
        self._ledgers_read_s = moment.loop_s
        return _Ledgers(facts, moment)

    async def _missing(self, name: str, one: _Found, ledgers: dict[str, LedgerFacts]) -> None:
        if one.cluster is None:
            return
        lagging = {
            key: state
            for flow in self.asked.flows
            if flow.source == name
            for key, state in _progress(ledgers, flow.destination, flow.name).items()
            if state.position < one.ends.get(TopicPartition(key.topic, key.partition), 0)
        }
        # Those that seem oldest: the lag of a flow is that of its oldest uncopied record.
        oldest = sorted(lagging, key=lambda key: lagging[key].last_timestamp)[:MOST]
        positions = {key: lagging[key].position for key in oldest}
        one.first_missing = await first_missing(one.cluster, positions, self._within(one))

    def _within(self, one: _Found) -> float:
        return one.site.reach.within(self.within_s)

    def _part_limit(self, one: _Found) -> float:
        """Returns the time limit of a part of the work, so that results of other partitions are not lost."""
        return self._within(one) * 0.8


def _now_ms() -> int:
    return int(time.time() * 1000)


async def _done(work: Awaitable[None]) -> None:
    await work


def _progress(ledgers: dict[str, LedgerFacts], destination: str, flow: str) -> dict[PartitionKey, Progress]:
    ledger = ledgers.get(destination)
    return dict(ledger.progress.get(flow, {})) if ledger is not None else {}


def _all(topic: str, partitions: int) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for number in range(partitions)}
