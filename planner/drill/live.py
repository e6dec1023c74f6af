"""`repl drill --against live`: reads production as a failover would, and measures RPO and RTO.

It writes nothing, so there is nothing to remove, also where it is killed. Canaries are written on demand
alone, and to scratch topics (`planner.drill.canaries`).
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from planner.config import load
from planner.drill import promises
from planner.drill.canaries import CanaryDrill
from planner.drill.rehearsal import DrillRequest, alone, drill_folder, drill_report, limits_of, now
from planner.drill.replica import Progress, clusters_to_lose, flows_out_of
from planner.drill.scenario_record import DrillAborted, DrillLoss, ScenarioRecord, problem_of
from planner.drill.standard import DrillLimits
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.drill import LIVE, DrillReport, Scenario
from planner.model.topology import Flow, Topology
from planner.workflows.audit.reading import ReadFromOffset, offsets, records
from planner.workflows.audit.replication_status import status
from planner.workflows.flows.failover import FailoverRehearsal, rehearse_failover
from planner.workflows.requests import (
    ClusterRequest,
    FailoverRequest,
    OffsetsRequest,
    ReplicationStatusRequest,
)
from runtime.contract.views.groups_view import FlowLoss, GroupLoss, GroupOffsetView
from runtime.contract.views.status_view import StatusView

_HEARTBEAT_WITHIN_S = 60.0
_LOOK_S = 0.5
AT_ONCE = 8  # groups that are read at the same time
_READ_ONLY = "nothing was written: flows were not ended, and groups were not moved"
_SCRATCH_ONLY = (
    "only scratch topics and groups were written: the topology's flows were not ended, its groups not moved",
    "canaries were copied by jobs of this machine, not by those of the topology, and without transforms",
)
_NOTES = (
    "the RTO is the time to read what is lost, to translate each group and to read its next record",
    "the time to end the flows and to restart consumers is not in the RTO",
)


def rehearse_live(request: DrillRequest, progress: Progress) -> DrillReport:
    """Reads, for each cluster that running flows leave, what its loss would cost now. Nothing is changed.

    With `canaries`, records then cross each active flow in scratch topics, which are removed. Failure: the
    topology has errors, clusters don't answer, or rights are missing; it names all of them.
    """
    topology = load(request.path, request.var_files)
    clusters = clusters_to_lose(topology)
    if not clusters:
        raise Failure(error("no flow runs, so there is nothing to rehearse", "declare a flow, or resume one"))
    if not request.canaries:
        started = now()
        scenarios = _losses(request, topology, clusters, progress)
        return drill_report(topology, started, (_READ_ONLY, *_NOTES), scenarios, against=LIVE)
    canaries = CanaryDrill(request, topology, progress)
    with alone(drill_folder(request.path)):
        started = now()
        canaries.check()
        scenarios = (*_losses(request, topology, clusters, progress), canaries.rehearse())
    notes = (*_SCRATCH_ONLY, *_NOTES, *canaries.notes)
    return drill_report(topology, started, notes, scenarios, against=LIVE)


def _losses(
    request: DrillRequest, topology: Topology, clusters: list[str], progress: Progress
) -> tuple[Scenario, ...]:
    progress("the clusters are read; nothing is changed")
    first = _status(request)
    _refuse_silent(topology, first)
    limits = limits_of(request, topology)
    return tuple(_LiveLoss(request, topology, one, limits, first, progress).run() for one in clusters)


def _status(request: DrillRequest) -> StatusView:
    return status(
        ReplicationStatusRequest(request.path, request.var_files, timeout_ms=request.timeout_ms, over_ms=0)
    )


def _refuse_silent(topology: Topology, view: StatusView) -> None:
    """Failure where a cluster that running flows touch does not answer."""
    running = {one.name for name in clusters_to_lose(topology) for one in flows_out_of(topology, name)}
    silent = {
        name
        for flow in view.flows
        if flow.name in running
        for name, answers in (
            (flow.source, flow.source_answers),
            (flow.destination, flow.destination_answers),
        )
        if not answers
    }
    if silent:
        hint = "a live drill needs every cluster; repl doctor CLUSTER shows what is wrong"
        raise Failure([error(f"{one} does not answer", hint, exit=ExitCode.ERROR) for one in sorted(silent)])


Item = TypeVar("Item")
Found = TypeVar("Found")


def at_once(read: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
    """Returns what `read` returns of each item, in their order; several are read at the same time.

    The first failure is raised. Reads that have not begun are then left out.
    """
    with ThreadPoolExecutor(AT_ONCE, "reads") as pool:
        try:
            return list(pool.map(read, items))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _LiveLoss:
    """What the loss of one cluster would cost now."""

    def __init__(
        self,
        request: DrillRequest,
        topology: Topology,
        cluster: str,
        limits: DrillLimits,
        first: StatusView,
        progress: Progress,
    ) -> None:
        self._request = request
        self._cluster = cluster
        self._limits = limits
        self._first = _heartbeats(first)
        self._flows: dict[str, Flow] = {one.name: one for one in flows_out_of(topology, cluster)}
        self._run = ScenarioRecord(progress)

    def run(self) -> Scenario:
        """Measures. What can't be read is the scenario's problem."""
        problem = ""
        try:
            self._measure()
        except (DrillAborted, Failure) as wrong:
            problem = problem_of(wrong)
        return self._run.result(f"{self._cluster} would be lost now", self._cluster, problem)

    def _measure(self) -> None:
        run, request = self._run, self._request
        began = time.monotonic()
        with run.step(f"what a failover from {self._cluster} would lose is read"):
            found = rehearse_failover(
                FailoverRequest(
                    request.path, request.var_files, timeout_ms=request.timeout_ms, cluster=self._cluster
                )
            )
        groups = [one for one in found.groups if one.flow in self._flows]
        with run.step(f"the next record of each of {len(groups)} groups is read at its destination"):
            unread = [
                one for one, reads in zip(groups, at_once(self._reads_on, groups), strict=True) if not reads
            ]
        run.rto_s = time.monotonic() - began
        run.loss = _loss([one for one in found.losses if one.flow in self._flows])
        promises.rpo(run, self._limits.rpo_records)
        promises.rto(run, self._limits.rto_s)
        self._promise_groups(groups, unread)
        self._promise_jobs(found)
        self._promise_heartbeats()

    def _reads_on(self, one: GroupLoss) -> bool:
        """Returns whether the next record of a group can be read, or none is there yet in any partition."""
        request = self._request
        view = offsets(
            OffsetsRequest(
                request.path,
                request.var_files,
                timeout_ms=request.timeout_ms,
                flow=one.flow,
                group=one.group,
            )
        )
        return any(self._reads(view.destination_cluster, each) for each in view.partitions)

    def _reads(self, cluster: str, place: GroupOffsetView) -> bool:
        at = place.committed if place.translation is None else place.translation
        if at is None:
            return False
        asked = ClusterRequest(
            self._request.path,
            self._request.var_files,
            timeout_ms=self._request.timeout_ms,
            cluster=cluster,
            topic=place.destination_topic,
        )
        # A position at the end has no record yet; that it can be read without an error is what counts.
        return all(
            traced.record.offset >= at
            for traced in records(asked, ReadFromOffset(place.partition, at), 1).records
        )

    def _promise_groups(self, groups: list[GroupLoss], unread: list[GroupLoss]) -> None:
        for flow in self._flows.values():
            self._run.promise(
                f"{flow.name} translates its consumer groups",
                "groups.sync is on",
                f"groups.sync is {'on' if flow.groups.sync else 'off'}",
                kept=flow.groups.sync,
                why=f"its consumers start anew at {flow.destination_cluster}",
            )
        for one in groups:
            destination = self._flows[one.flow].destination_cluster
            # A group that had read what did not arrive has no position yet: that is the RPO.
            readable = not one.exact or one not in unread
            self._run.promise(
                f"group {one.group} of {one.flow} would go on at {destination} where it stopped",
                "every partition",
                _positions(one),
                kept=not one.again and not one.kept and readable,
                why=one.why or f"look at repl offsets {one.flow} {one.group}",
            )

    def _promise_jobs(self, found: FailoverRehearsal) -> None:
        for name, up in found.jobs:
            self._run.promise(
                f"job {name} runs",
                "running",
                "running" if up else "not running",
                kept=up,
                why="a failover starts it first, which takes longer",
            )

    def _promise_heartbeats(self) -> None:
        """A heartbeat is a record of the product's own that its jobs write to each source and copy."""
        run, crossed = self._run, set[str]()
        began = time.monotonic()
        with run.step("a new heartbeat crosses each flow"):
            while crossed != set(self._flows) and time.monotonic() - began < _HEARTBEAT_WITHIN_S:
                seen = _heartbeats(_status(self._request))
                crossed |= {
                    name for name in self._flows if name in seen and seen[name] > self._first.get(name, 0)
                }
                if crossed != set(self._flows):
                    time.sleep(_LOOK_S)
        for name in self._flows:
            run.promise(
                f"a new heartbeat crosses {name}",
                f"within {_HEARTBEAT_WITHIN_S:g} s",
                "arrived" if name in crossed else "did not arrive",
                kept=name in crossed,
                why="the flow copies nothing now: look at repl status",
            )


def _heartbeats(view: StatusView) -> dict[str, int]:
    """Returns when the newest heartbeat of each flow was written; flows without one are left out."""
    return {flow.name: view.at_ms - flow.link_age_ms for flow in view.flows if flow.link_age_ms is not None}


def _loss(losses: list[FlowLoss]) -> DrillLoss | None:
    """Returns what all flows would lose; None where that is not known of every partition."""
    known = [one.records for one in losses if one.records is not None and not one.unheard]
    if len(known) < len(losses):
        return None
    return DrillLoss(sum(known), max((one.ms or 0 for one in losses), default=0) / 1000)


def _positions(one: GroupLoss) -> str:
    counts = {
        "at its own position": one.exact,
        "would read records again": one.again,
        f"had read {one.records_lost:,} records that did not arrive": one.lost,
        "would keep another position": one.kept,
    }
    return ", ".join(f"{count:,} {text}" for text, count in counts.items() if count) or "no offsets"
