"""How far the waves of cutovers are: their state, what is left to copy, the write pause, and stragglers.

Everything is derived: from the YAML, the logs and ledgers of both clusters, and the history of the applies.
"""

import math
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from planner.diff.record import recorded_flow
from planner.graph.cutovers import (
    WaveTopics,
    fence_addresses,
    fences_of,
    is_fenced,
    source_of,
    split_transactions,
    waves_of,
)
from planner.graph.routes import router_of
from planner.kafka import ClusterClient
from planner.kafka.client import BrokerConnection
from planner.kafka.principals import read_acls, read_quotas
from planner.model.address import Kind
from planner.model.diagnostic import Diagnostic, Failure
from planner.model.observed import RegistryEntry
from planner.model.step import ApplyRecord, Result, Step
from planner.model.topology import Cutover, Fence, Topology
from planner.plan.steps.acls import CreateAcl
from planner.plan.steps.quotas import AlterQuota
from planner.plan.steps.registry import Own
from planner.state.internal_topics import read_registry
from planner.workflows.audit.access import answered, cluster_endpoint
from planner.workflows.audit.history import histories
from runtime.contract.results.status import UNKNOWN
from runtime.contract.results.waves import Straggler, WaveProgress, WaveState
from runtime.contract.spec.flow import ENDED
from runtime.contract.spec.selection import NamePatterns

if TYPE_CHECKING:
    from runtime.contract.results.records import ClusterClients, TopicClients
    from runtime.contract.results.status import ReplicationStatus, TopicHealth

_AGAIN_S = 10.0


def waves_seen(cutover: Cutover, topology: Topology, status: "ReplicationStatus") -> list[WaveTopics]:
    """Returns the waves of a cutover, with the topics that the status shows."""
    taken = {flow.name: [topic.topic for topic in flow.topics] for flow in status.flows}
    return waves_of(cutover, topology, taken)


def healths_of(wave: WaveTopics, status: "ReplicationStatus") -> "list[TopicHealth]":
    """Returns the topics of a wave as the status shows them."""
    return [
        topic
        for flow in status.flows
        for topic in flow.topics
        if topic.topic in wave.topics.get(flow.name, ())
    ]


def has_moved(wave: WaveTopics, status: "ReplicationStatus") -> bool:
    """Returns whether the topology and the ledgers say that all topics of a wave are promoted."""
    return wave.is_moved and all(topic.state in ENDED for topic in healths_of(wave, status))


class WaveReader:
    """Reads how far the waves of a topology are. Histories and clients are read again after `_AGAIN_S` only.

    What can't be read is left out: pauses without the history, stragglers without the clients of a source.
    """

    def __init__(self, topology: Topology, within_s: float) -> None:
        self._topology = topology
        self._within_s = within_s
        self._read_s = -math.inf
        self._applies: tuple[ApplyRecord, ...] = ()
        self._clients: dict[str, ClusterClients] = {}
        # What the registry of a source remembers, and the names of the fences that it shows.
        self._fences: dict[tuple[str, Fence], tuple[Sequence[RegistryEntry], frozenset[str]]] = {}

    async def progress(self, status: "ReplicationStatus") -> list[WaveProgress]:
        """Returns how far each wave of each cutover is."""
        topology = self._topology
        waves = [wave for cutover in topology.cutovers for wave in waves_seen(cutover, topology, status)]
        now_s = time.monotonic()
        if waves and now_s - self._read_s > _AGAIN_S:
            self._read_s = now_s
            await self._read(waves, status)
        return [self._progress_of(wave, status) for wave in waves]

    async def _read(self, waves: Iterable[WaveTopics], status: "ReplicationStatus") -> None:
        topology = self._topology
        flows = [topology.flows[flow] for wave in waves for flow in wave.cutover.flows]
        names = sorted({end for flow in flows for end in flow.ends})
        with suppress(Failure):
            self._applies = await histories({name: topology.clusters[name] for name in names}, self._within_s)
        for source in sorted(
            {source_of(wave.cutover, topology) for wave in waves if has_moved(wave, status)}
        ):
            with suppress(Failure):
                self._clients[source] = await clients_of(topology, source, self._within_s)
        for source, fence in {(source_of(wave.cutover, topology), wave.cutover.fence) for wave in waves}:
            self._fences.pop((source, fence), None)
            if fence is not Fence.NONE:
                with suppress(Failure):
                    async with source_client(topology, source, self._within_s) as client:
                        shown = await fences_shown(client, fence)
                        self._fences[source, fence] = await read_registry(client), shown

    def _progress_of(self, wave: WaveTopics, status: "ReplicationStatus") -> WaveProgress:
        topology, gate = self._topology, wave.wave.gate
        healths = healths_of(wave, status)
        has_lags = all(topic.lag_is_known for topic in healths)
        moved = has_moved(wave, status)
        source = source_of(wave.cutover, topology)
        owned, shown = self._fences.get((source, wave.cutover.fence), (None, frozenset[str]()))
        stops, fence = fence_at_source(wave, topology, owned, shown)
        state = state_of(wave, topology, status, fenced=stops)
        made_ms = fenced_at(wave, topology, self._applies) if state is not WaveState.WAITING else []
        fenced_ms, moved_ms = (
            pause_of(wave, made_ms, self._applies) if moved else (max(made_ms, default=None), None)
        )
        until_ms = status.at_ms if state is WaveState.FENCED else moved_ms
        return WaveProgress(
            cutover=wave.cutover.name,
            wave=wave.wave.name,
            state=state,
            fence=fence,
            topics=tuple(wave.names),
            left=sum(topic.lag_records or 0 for topic in healths) if has_lags else None,
            gate=f"lag {gate.lag} for {gate.for_ms / 1000:g} s, verify {gate.verify}",
            pause_ms=until_ms - fenced_ms if fenced_ms is not None and until_ms is not None else None,
            stragglers=stragglers(healths, self._clients[source].topics, moved_ms)
            if source in self._clients and state is WaveState.MOVED
            else (),
        )


def source_client(topology: Topology, source: str, timeout_s: float) -> ClusterClient:
    return ClusterClient(cluster_endpoint(topology.clusters[source]), timeout_s)


async def fences_shown(
    client: ClusterClient, fence: Fence, broker: BrokerConnection | None = None
) -> frozenset[str]:
    """Returns the names of the rules at a cluster, or of the entities that a fence limits there.

    Any broker says so, or this one.
    """
    if fence is Fence.ACL:
        return fences_of(fence, await read_acls(client, broker) or (), {})
    quotas = await read_quotas(client, broker)
    return fences_of(fence, (), {entity.name: limits for entity, limits in quotas.items()})


async def shared_transactions(topology: Topology, within_s: float) -> tuple[Diagnostic, ...]:
    """Returns a warning for producers whose transactions write topics of two waves.

    A source whose clients can't be read has none: a plan says elsewhere that it does not answer.
    """
    warnings: list[Diagnostic] = []
    router = router_of(topology)
    for cutover in topology.cutovers:
        if len(cutover.waves) < 2:
            continue
        try:
            topics = (await clients_of(topology, source_of(cutover, topology), within_s)).topics
        except Failure:
            continue
        written: dict[str, set[str]] = defaultdict(set)
        for topic in topics:
            for producer in topic.producers:
                if producer.transactional_id is not None and producer.flow is None:
                    written[producer.transactional_id].add(topic.topic)
        taken = {
            flow: [topic.topic for topic in topics if router.routes[flow].answer(topic.topic).taken]
            for flow in cutover.flows
        }
        warnings += split_transactions(waves_of(cutover, topology, taken), written)
    return tuple(warnings)


async def clients_of(topology: Topology, source: str, within_s: float) -> "ClusterClients":
    """Returns the producers and the consumers of all topics of a cluster, without their rates."""
    from runtime.audit.read.clients import read_clients

    endpoint = cluster_endpoint(topology.clusters[source])
    return await answered(read_clients(endpoint, None, 0.0, within_s))


def state_of(wave: WaveTopics, topology: Topology, status: "ReplicationStatus", *, fenced: bool) -> WaveState:
    """Returns how far a wave is. The ledgers say whether a topic that the topology promotes is promoted."""
    if has_moved(wave, status):
        returning = any(
            flow.reverse_of in wave.topics and flow.state != "promoted" for flow in topology.flows.values()
        )
        return WaveState.RETURNING if returning else WaveState.MOVED
    if wave.is_moved and any(topic.state == UNKNOWN for topic in healths_of(wave, status)):
        return WaveState.UNKNOWN
    return WaveState.FENCED if fenced else WaveState.WAITING


def fence_at_source(
    wave: WaveTopics, topology: Topology, owned: Sequence[RegistryEntry] | None, shown: Collection[str]
) -> tuple[bool, str]:
    """Returns whether the part of a wave's fence that exists at its source stops producers, and a text of it.

    `owned` is what the registry of the source remembers, and `shown` are the names of `fences_of` there. It
    is None where the source could not be read: then the key `fenced` decides.
    """
    source, declared = source_of(wave.cutover, topology), wave.wave.fenced
    if wave.cutover.fence is Fence.NONE:
        return declared, "none"
    if owned is None:
        return declared, f"{source} could not be read"
    if not is_fenced(wave, topology, owned, shown):
        return False, f"missing at {source}" if declared else "not made"
    fence = {address.name for address in fence_addresses(wave, topology)}
    kind = "rules" if wave.cutover.fence is Fence.ACL else "quotas"
    made = len(fence & set(shown))
    here = f"{made} of {len(fence)} {kind} at {source}"
    return True, here if declared else f"{here}, though the topology has no fence"


def pause_of(
    wave: WaveTopics, fences: Iterable[int], applies: Sequence[ApplyRecord]
) -> tuple[int | None, int | None]:
    """Returns when the producers of a moved wave were stopped, and when it was promoted; None if unknown.

    Fences that were made behind the promotion are of topics that were created since.
    """
    for fenced_ms in sorted(fences, reverse=True):
        if (moved_ms := promoted_at(wave, applies, fenced_ms)) is not None:
            return fenced_ms, moved_ms
    return None, promoted_at(wave, applies, 0)


def fenced_at(wave: WaveTopics, topology: Topology, applies: Iterable[ApplyRecord]) -> list[int]:
    """Returns when the applies began that made a part of the fence of a wave."""
    fence = set(fence_addresses(wave, topology))
    return [
        applied.started_ms
        for applied in applies
        if any(
            isinstance(step, CreateAcl) or (isinstance(step, AlterQuota) and step.set)  # else it lifts limits
            for step in _done(applied)
            if step.address in fence
        )
    ]


def promoted_at(wave: WaveTopics, applies: Iterable[ApplyRecord], since_ms: int) -> int | None:
    """Returns when the applies had ended that recorded the promotion of a wave's topics, after its fence."""
    first: dict[str, int] = {}
    for applied in applies:
        if (ended_ms := applied.finished_ms) is None or ended_ms < since_ms:
            continue
        for step in _done(applied):
            if isinstance(step, Own) and step.address.kind is Kind.FLOW:
                flow = recorded_flow(step.entry)
                if flow is None:
                    continue
                topics = wave.topics.get(flow.name, ())
                if not flow.runs or (topics and all(map(NamePatterns(flow.promoted).match, topics))):
                    first.setdefault(flow.name, ended_ms)
    return max(first.values()) if wave.topics.keys() <= first.keys() else None


def _done(applied: ApplyRecord) -> Iterator[Step]:
    for step in applied.steps:
        outcome = applied.outcomes.get(step.id)
        if outcome is not None and outcome.result is Result.DONE:
            yield step


def readers_left(wave: WaveTopics, clients: "Iterable[TopicClients]") -> dict[str, int]:
    """Returns the groups of a wave with members at its source, and how many records they have not committed.

    What they read from now on is read again at the destination: their offsets move with the promotion.
    """
    of_wave, match = frozenset(wave.names), NamePatterns(wave.wave.groups).match
    left: dict[str, int] = defaultdict(int)
    for topic in clients:
        for group in topic.consumers if topic.topic in of_wave else ():
            if group.members and match(group.group):
                left[group.group] += sum(
                    part.lag if part.lag is not None else part.end or 0 for part in group.partitions
                )
    return {group: records for group, records in sorted(left.items()) if records}


def stragglers(
    healths: "Iterable[TopicHealth]", clients: "Iterable[TopicClients]", since_ms: int | None
) -> tuple[Straggler, ...]:
    """Returns what clients still do with promoted topics at their source.

    Records behind the last one that was copied were written since. A producer is named where such records are
    there, and its newest one is as late as the promotion.
    """
    at_source = {topic.topic: topic for topic in clients}
    straggling: list[Straggler] = []
    for topic in healths:
        records = topic.records_behind
        seen = at_source.get(topic.topic)
        producers = [
            producer.transactional_id or f"id {producer.producer_id}"
            for producer in (seen.producers if seen is not None and records else ())
            if producer.flow is None and (producer.last_timestamp_ms or 0) >= (since_ms or 0)
        ]
        groups = [group.group for group in (seen.consumers if seen is not None else ()) if group.members]
        if records or groups:
            straggling.append(
                Straggler(
                    topic=topic.topic,
                    records=records,
                    producers=tuple(producers),
                    groups=tuple(groups),
                )
            )
    return tuple(straggling)
