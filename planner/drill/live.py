"""`repl drill --against live`: reads production as a failover would, and measures RPO and RTO.

It writes nothing, so there is nothing to remove, also where it is killed. Canaries are written on demand
alone, and to scratch topics (`planner.drill.canaries`).
"""

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from planner.drill import promises
from planner.drill.canaries import CanaryDrill
from planner.drill.replica import only_drill
from planner.drill.routes import clusters_to_lose, flows_out_of
from planner.drill.scenario_record import Progress, ScenarioRecord
from planner.model.diagnostic import Failure, error
from planner.model.drill import RecoveryTime, Scenario
from planner.model.topology import Flow, Topology
from planner.workflows.audit.reading import offsets, records
from planner.workflows.audit.replication_status import status
from planner.workflows.flows.failover import rehearse_failover
from planner.workflows.requests import (
    ClusterRequest,
    DrillRequest,
    FailoverRequest,
    OffsetsRequest,
    ReplicationStatusRequest,
)
from runtime.contract.results.groups import GroupLoss, GroupOffset
from runtime.contract.results.status import ReplicationStatus

_HEARTBEAT_WITHIN_S = 60.0
_AT_ONCE = 8  # groups that are read at the same time
_READ_ONLY = "nothing was written: flows were not ended, and groups were not moved"
_SCRATCH_ONLY = (
    "only scratch topics and groups were written: the topology's flows were not ended, its groups not moved",
    "canaries were copied by jobs of this machine, not by those of the topology, and without transforms",
)
_NOTES = (
    "the RTO is the time to read what is lost, to translate each group and to read its next record",
    "the time to end the flows and to restart consumers is not in the RTO",
)


def rehearse_live(
    request: DrillRequest, topology: Topology, progress: Progress
) -> tuple[tuple[str, ...], tuple[Scenario, ...]]:
    """Reads, for each cluster that running flows leave, what its loss would cost now. Nothing is changed.

    With `canaries`, records then cross each active flow in scratch topics, which are removed. Returns notes
    and scenarios. Failure: clusters don't answer, or rights are missing; it names all of them.
    """
    notes = (*_NOTES, *_without_heartbeats(topology))
    if not request.canaries:
        return (_READ_ONLY, *notes), _losses(request, topology, progress)
    canaries = CanaryDrill(request, topology, progress)
    with only_drill(request.path):
        canaries.check()
        scenarios = (*_losses(request, topology, progress), canaries.rehearse())
    return (*_SCRATCH_ONLY, *notes, *canaries.notes), scenarios


def _without_heartbeats(topology: Topology) -> list[str]:
    """Returns a note of the flows whose copying no heartbeat shows."""
    silent = sorted(
        flow.name
        for cluster in clusters_to_lose(topology)
        for flow in flows_out_of(topology, cluster)
        if flow.heartbeats_every_ms is None
    )
    return [f"without heartbeats, whether they copy now is not known: {', '.join(silent)}"] if silent else []


def _losses(request: DrillRequest, topology: Topology, progress: Progress) -> tuple[Scenario, ...]:
    progress("the clusters are read; nothing is changed")
    first = status(request.derive(ReplicationStatusRequest, over_ms=0))
    clusters = clusters_to_lose(topology)
    running = {flow.name for cluster in clusters for flow in flows_out_of(topology, cluster)}
    flows = [flow for flow in first.flows if flow.name in running]
    silent = {flow.source for flow in flows if not flow.source_answers}
    silent |= {flow.destination for flow in flows if not flow.destination_answers}
    if silent:
        hint = "a live drill needs every cluster; repl doctor CLUSTER shows what is wrong"
        raise Failure([error(f"{cluster} does not answer", hint) for cluster in sorted(silent)])
    scenarios = []
    for cluster in clusters:
        run = ScenarioRecord(progress, f"{cluster} would be lost now", cluster)
        flows_out = {flow.name: flow for flow in flows_out_of(topology, cluster)}
        with run.recording_problem():
            _measure(run, request, flows_out)
            _promise_heartbeats(run, request, flows_out, _heartbeats(first))
        scenarios.append(run.scenario)
    return tuple(scenarios)


def _reads_on(request: DrillRequest, group: GroupLoss) -> bool:
    """Returns whether the next record of a group can be read, or none is there yet in any partition."""
    view = offsets(request.derive(OffsetsRequest, flow=group.flow, group=group.group))
    return any(_reads(request, view.destination_cluster, place) for place in view.partitions)


def _reads(request: DrillRequest, cluster: str, place: GroupOffset) -> bool:
    offset = place.committed if place.translation is None else place.translation
    if offset is None:
        return False
    # A position at the end has no record yet; that it can be read without an error is what counts.
    topic = request.derive(ClusterRequest, cluster=cluster, topic=place.destination_topic)
    read = records(topic, (place.partition, offset), 1).records
    return all(traced.record.offset >= offset for traced in read)


def _measure(run: ScenarioRecord, request: DrillRequest, flows: Mapping[str, Flow]) -> None:
    """Measures and promises what the loss of a cluster would cost, out of which these flows copy."""
    cluster = run.scenario.cluster
    began = time.monotonic()
    with run.step(f"what a failover from {cluster} would lose is read"):
        rehearsal = rehearse_failover(request.derive(FailoverRequest, cluster=cluster))
    read_at = time.monotonic()
    groups = [group for group in rehearsal.groups if group.flow in flows]
    text = f"the next record of each of {len(groups)} groups is read at its destination"
    with run.step(text), ThreadPoolExecutor(_AT_ONCE, "reads") as pool:
        readable = list(pool.map(partial(_reads_on, request), groups))
    run.scenario.rto = RecoveryTime(read_at - began, 0.0, time.monotonic() - read_at)
    losses = [loss for loss in rehearsal.losses if loss.flow in flows]
    counts = [loss.records for loss in losses if loss.records is not None and not loss.unheard]
    if len(counts) == len(losses):  # else the RPO is unknown
        run.scenario.rpo_records = sum(counts)
    promises.rpo(run, request.max_rpo)
    promises.rto(run, request.max_rto_ms and request.max_rto_ms / 1000)
    for flow in flows.values():
        synced = f"groups.sync is {'on' if flow.groups.sync else 'off'}"
        why = f"its consumers start anew at {flow.destination_cluster}"
        run.promise(f"{flow.name} translates its consumer groups", "groups.sync is on", synced, why)
    for group, is_readable in zip(groups, readable, strict=True):
        destination = flows[group.flow].destination_cluster
        run.promise(
            f"group {group.group} of {group.flow} would go on at {destination} where it stopped",
            "every partition",
            _positions(group),
            group.why or f"look at repl offsets {group.flow} {group.group}",
            # A group that had read what did not arrive has no position yet: that is the RPO.
            kept=not group.again and not group.kept and (is_readable or not group.exact),
        )
    for name, up in rehearsal.jobs:
        runs = "running" if up else "not running"
        run.promise(f"job {name} runs", "running", runs, "a failover starts it first, which takes longer")


def _promise_heartbeats(
    run: ScenarioRecord, request: DrillRequest, flows: Mapping[str, Flow], first: Mapping[str, int]
) -> None:
    """A heartbeat is a record of the product's own that its jobs write to each source and copy.

    `first` has the heartbeat of each flow when the drill began.
    """
    beating = {name: flow.heartbeats_every_ms for name, flow in flows.items() if flow.heartbeats_every_ms}
    if not beating:
        return
    within_s = max(_HEARTBEAT_WITHIN_S, 2 * max(beating.values()) / 1000)
    waiting = set(beating)

    def missing() -> set[str]:
        now = _heartbeats(status(request.derive(ReplicationStatusRequest, over_ms=0)))
        waiting.difference_update({name for name in beating if now.get(name, 0) > first.get(name, 0)})
        return waiting

    with run.step("a new heartbeat crosses each flow"):
        run.wait_while(missing, within_s=within_s)
    for name in beating:
        run.promise(
            f"a new heartbeat crosses {name}",
            f"within {within_s:g} s",
            "did not arrive" if name in waiting else "arrived",
            "the flow copies nothing now: look at repl status",
            kept=name not in waiting,
        )


def _heartbeats(view: ReplicationStatus) -> dict[str, int]:
    """Returns when the newest heartbeat of each flow was written; flows without one are left out."""
    return {flow.name: view.at_ms - flow.link_age_ms for flow in view.flows if flow.link_age_ms is not None}


def _positions(group: GroupLoss) -> str:
    counts = {
        "at its own position": group.exact,
        "would read records again": group.again,
        f"had read {group.records_lost:,} records that did not arrive": group.lost,
        "would keep another position": group.kept,
    }
    return ", ".join(f"{count:,} {text}" for text, count in counts.items() if count) or "no offsets"
