"""Inspects every cluster of a topology once: all concurrently, each with its own failures.

The order matters. Log starts are read before the ledger and end offsets after it, so that a partition that
advances meanwhile never seems to have lost anything.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from runtime.audit.ledger import AuditFailure, as_audit_failure, unanswered
from runtime.audit.status.facts import ClusterFacts, LedgerFacts, StatusRequest, StatusSnapshot, TopicFacts
from runtime.audit.status.jobs import doubtful
from runtime.audit.status.join import join
from runtime.audit.status.sources import MOST, ReconnectingCluster, StatusLedgerReader, first_missing
from runtime.batch.failure import BatchFailure
from runtime.contract.records.ledger import PartitionKey, Progress, UnreadableRecord
from runtime.contract.views.status_view import StatusView
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.offsets import EARLIEST, LATEST, ListedOffset, TopicPartition
from runtime.kafka.queries.partitions import list_offsets
from runtime.kafka.timing import in_time

DEFAULT_S = 10.0
AGAIN_S = 2.0  # longer than the interval of heartbeats


async def read_status(asked: StatusRequest, over_s: float = 1.0, within_s: float = DEFAULT_S) -> StatusView:
    """Inspects all clusters twice, `over_s` apart, and derives the status.

    A job that seems dead is inspected once more before the status reports it as dead.
    """
    async with StatusReader(asked, within_s) as looker:
        first = await looker.read()
        await asyncio.sleep(over_s)
        second = await looker.read() if over_s else first
        if any(doubtful(ledger, second.at_ms) for ledger in second.ledgers.values()):
            await asyncio.sleep(AGAIN_S)
            second = await looker.read()
        return join(asked, second, first)


@dataclass(slots=True)
class _Found:
    """Holds the facts that one inspection has read of a cluster so far."""

    site: ReconnectingCluster
    cluster: KafkaCluster | None = None
    why: str = ""
    topics: dict[str, TopicFacts] | None = None
    wanted: set[TopicPartition] = field(default_factory=set)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    highs: dict[TopicPartition, int] = field(default_factory=dict)
    first_missing: dict[PartitionKey, int] = field(default_factory=dict)
    id: str | None = None

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
        )


_Work = Callable[[_Found, KafkaCluster], Awaitable[None]]


class StatusReader:
    """Inspects clusters repeatedly. It keeps its connections and what it read: a second inspection costs
    little.

    With `times` it reads the timestamp of the first uncopied record, from which lag in seconds is computed.
    """

    def __init__(self, asked: StatusRequest, within_s: float = DEFAULT_S, *, times: bool = True) -> None:
        self.asked = asked
        self._times = times
        self.within_s = within_s
        names = {*asked.sources, *asked.destinations}
        self._sites = {name: ReconnectingCluster(asked.clusters[name]) for name in sorted(names)}
        self._desks: dict[str, StatusLedgerReader] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for site in self._sites.values():
            await site.close()

    async def read(self) -> StatusSnapshot:
        found = {name: _Found(site) for name, site in self._sites.items()}
        await asyncio.gather(*(self._listed(one) for one in found.values()))
        self._want_sources(found)
        await asyncio.gather(*(self._guarded(one, self._starts) for one in found.values()))
        ledgers = await self._ledgers(found)
        self._want_destinations(found, ledgers)
        await asyncio.gather(*(self._guarded(one, self._ends) for one in found.values()))
        if self._times:
            await asyncio.gather(*(self._missing(name, one, ledgers) for name, one in found.items()))
        at_ms = int(time.time() * 1000)
        return StatusSnapshot(at_ms, {name: one.facts() for name, one in found.items()}, ledgers)

    async def _listed(self, one: _Found) -> None:
        try:
            one.cluster = await one.site.cluster(self._within(one))
            one.id = one.cluster.cluster_id
        except AuditFailure as failure:
            one.why = failure.why
            return
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
        topics = await cluster.all_topics()
        one.topics = {
            name: TopicFacts(topic.id, len(topic.partitions))
            for name, topic in topics.items()
            if topic.error is ErrorCode.NONE
        }

    def _want_sources(self, found: dict[str, _Found]) -> None:
        for flow in self.asked.flows:
            topics = found[flow.source].topics or {}
            for topic in self.asked.selected(flow, topics):
                found[flow.source].wanted |= _all(topic, topics[topic].partitions)

    def _want_destinations(self, found: dict[str, _Found], ledgers: dict[str, LedgerFacts]) -> None:
        for destination, ledger in ledgers.items():
            one = found[destination]
            topics = one.topics or {}
            for progress in ledger.progress.values():
                for key, state in progress.items():
                    there = topics.get(state.destination_topic)
                    if there is not None and key.partition < there.partitions:
                        one.wanted.add(TopicPartition(state.destination_topic, key.partition))

    async def _starts(self, one: _Found, cluster: KafkaCluster) -> None:
        one.starts = await self._offsets(one, cluster, one.wanted, EARLIEST, Isolation.READ_UNCOMMITTED)

    async def _ends(self, one: _Found, cluster: KafkaCluster) -> None:
        late = one.wanted - one.starts.keys()
        starts, one.ends, one.highs = await asyncio.gather(
            self._offsets(one, cluster, late, EARLIEST, Isolation.READ_UNCOMMITTED),
            self._offsets(one, cluster, one.wanted, LATEST, Isolation.READ_COMMITTED),
            self._offsets(one, cluster, one.wanted, LATEST, Isolation.READ_UNCOMMITTED),
        )
        one.starts |= starts

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

    async def _ledgers(self, found: dict[str, _Found]) -> dict[str, LedgerFacts]:
        ledgers: dict[str, LedgerFacts] = {}

        async def read(name: str) -> None:
            one = found[name]
            flows = [flow.name for flow in self.asked.into(name)]

            async def work(_: _Found, cluster: KafkaCluster) -> None:
                desk = self._desks.get(name)
                if desk is None or desk.cluster is not cluster:
                    desk = self._desks[name] = StatusLedgerReader(cluster)
                ledgers[name] = await desk.read(flows, self._part_limit(one))

            await self._guarded(one, work)

        await asyncio.gather(*(read(name) for name in self.asked.destinations))
        return ledgers

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


async def _done(work: Awaitable[None]) -> None:
    await work


def _progress(ledgers: dict[str, LedgerFacts], destination: str, flow: str) -> dict[PartitionKey, Progress]:
    ledger = ledgers.get(destination)
    return dict(ledger.progress.get(flow, {})) if ledger is not None else {}


def _all(topic: str, partitions: int) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for number in range(partitions)}
