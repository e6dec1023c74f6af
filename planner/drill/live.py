"""`repl drill --against live`: reads production as a failover would, and measures RPO and RTO.

It writes nothing, so there is nothing to remove, also where it is killed. Canaries are written on demand
alone, and to scratch topics (`planner.drill.canaries`).
"""

import time
from concurrent.futures import ThreadPoolExecutor

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
_LOOK_S = 0.5
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
    if not request.canaries:
        return (_READ_ONLY, *_NOTES), _losses(request, topology, progress)
    canaries = CanaryDrill(request, topology, progress)
    with only_drill(request.path):
        canaries.check()
        scenarios = (*_losses(request, topology, progress), canaries.rehearse())
    return (*_SCRATCH_ONLY, *_NOTES, *canaries.notes), scenarios


def _losses(request: DrillRequest, topology: Topology, progress: Progress) -> tuple[Scenario, ...]:
    progress("the clusters are read; nothing is changed")
    first = _status(request)
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
        loss = _LiveLoss(request, topology, cluster, progress)
        with loss.run.recording_problem():
            loss.measure(_heartbeats(first))
        scenarios.append(loss.run.scenario)
    return tuple(scenarios)


def _status(request: DrillRequest) -> ReplicationStatus:
    return status(
        ReplicationStatusRequest(request.path, request.var_files, timeout_ms=request.timeout_ms, over_ms=0)
    )


class _LiveLoss:
    """What the loss of one cluster would cost now."""

    def __init__(self, request: DrillRequest, topology: Topology, cluster: str, progress: Progress) -> None:
        self.run = ScenarioRecord(progress, f"{cluster} would be lost now", cluster)
        self._request = request
        self._cluster = cluster
        self._flows: dict[str, Flow] = {flow.name: flow for flow in flows_out_of(topology, cluster)}

    def measure(self, first: dict[str, int]) -> None:
        """Measures and promises. `first` has the heartbeat of each flow when the drill began."""
        run, request = self.run, self._request
        began = time.monotonic()
        with run.step(f"what a failover from {self._cluster} would lose is read"):
            rehearsal = rehearse_failover(
                FailoverRequest(
                    request.path, request.var_files, timeout_ms=request.timeout_ms, cluster=self._cluster
                )
            )
        read_at = time.monotonic()
        groups = [group for group in rehearsal.groups if group.flow in self._flows]
        text = f"the next record of each of {len(groups)} groups is read at its destination"
        with run.step(text), ThreadPoolExecutor(_AT_ONCE, "reads") as pool:
            readable = list(pool.map(self._reads_on, groups))
        run.scenario.rto = RecoveryTime(read_at - began, 0.0, time.monotonic() - read_at)
        losses = [loss for loss in rehearsal.losses if loss.flow in self._flows]
        counts = [loss.records for loss in losses if loss.records is not None and not loss.unheard]
        if len(counts) == len(losses):  # else the RPO is unknown
            run.scenario.rpo_records = sum(counts)
        promises.rpo(run, request.max_rpo)
        promises.rto(run, request.max_rto_ms and request.max_rto_ms / 1000)
        for flow in self._flows.values():
            run.promise(
                f"{flow.name} translates its consumer groups",
                "groups.sync is on",
                f"groups.sync is {'on' if flow.groups.sync else 'off'}",
                kept=flow.groups.sync,
                why=f"its consumers start anew at {flow.destination_cluster}",
            )
        for group, reads in zip(groups, readable, strict=True):
            run.promise(
                f"group {group.group} of {group.flow} would go on at"
                f" {self._flows[group.flow].destination_cluster} where it stopped",
                "every partition",
                _positions(group),
                # A group that had read what did not arrive has no position yet: that is the RPO.
                kept=not group.again and not group.kept and (reads or not group.exact),
                why=group.why or f"look at repl offsets {group.flow} {group.group}",
            )
        for name, up in rehearsal.jobs:
            run.promise(
                f"job {name} runs",
                "running",
                "running" if up else "not running",
                kept=up,
                why="a failover starts it first, which takes longer",
            )
        self._promise_heartbeats(first)

    def _reads_on(self, group: GroupLoss) -> bool:
        """Returns whether the next record of a group can be read, or none is there yet in any partition."""
        request = self._request
        view = offsets(
            OffsetsRequest(
                request.path,
                request.var_files,
                timeout_ms=request.timeout_ms,
                flow=group.flow,
                group=group.group,
            )
        )
        return any(self._reads(view.destination_cluster, place) for place in view.partitions)

    def _reads(self, cluster: str, place: GroupOffset) -> bool:
        offset = place.committed if place.translation is None else place.translation
        if offset is None:
            return False
        request = ClusterRequest(
            self._request.path,
            self._request.var_files,
            timeout_ms=self._request.timeout_ms,
            cluster=cluster,
            topic=place.destination_topic,
        )
        # A position at the end has no record yet; that it can be read without an error is what counts.
        read = records(request, (place.partition, offset), 1).records
        return all(traced.record.offset >= offset for traced in read)

    def _promise_heartbeats(self, first: dict[str, int]) -> None:
        """A heartbeat is a record of the product's own that its jobs write to each source and copy."""
        crossed = set[str]()
        began = time.monotonic()
        with self.run.step("a new heartbeat crosses each flow"):
            while True:
                seen = _heartbeats(_status(self._request))
                crossed |= {name for name in self._flows if seen.get(name, 0) > first.get(name, 0)}
                if crossed == set(self._flows) or time.monotonic() - began > _HEARTBEAT_WITHIN_S:
                    break
                time.sleep(_LOOK_S)
        for name in self._flows:
            self.run.promise(
                f"a new heartbeat crosses {name}",
                f"within {_HEARTBEAT_WITHIN_S:g} s",
                "arrived" if name in crossed else "did not arrive",
                kept=name in crossed,
                why="the flow copies nothing now: look at repl status",
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
