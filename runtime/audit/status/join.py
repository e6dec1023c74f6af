"""Derives the output of `repl status` from two inspections. Pure."""

from __future__ import annotations

from runtime.audit.status.facts import (
    ClusterFacts,
    StatusRequest,
    StatusSnapshot,
    sum_known,
)
from runtime.audit.status.flows import FlowFacts
from runtime.audit.status.jobs import JobReports, judge
from runtime.contract.results.status import ClusterHealth, FlowHealth, ReplicationStatus
from runtime.contract.spec.jobspec import FlowSpec

_HOLDS = ("active", "paused")


def join(
    request: StatusRequest, now: StatusSnapshot, before: StatusSnapshot | None = None
) -> ReplicationStatus:
    """Derives the status. `before` is an earlier inspection, of which only the ledgers matter.

    Rates are computed from the changes since then, and a heartbeat that moved since then shows a live job.
    """
    before = before if before is not None else now
    jobs = _jobs(request, now, before)
    flows = [
        FlowFacts(request, flow, jobs[flow.destination, _holder(request, flow, now)], now, before).status()
        for flow in request.flows
    ]
    return ReplicationStatus(
        topology=request.topology,
        at_ms=now.at_ms,
        over_ms=now.ledgers_ms - before.ledgers_ms,
        clusters=[_cluster(cluster, flows) for _, cluster in sorted(now.clusters.items())],
        jobs=[jobs[key].seen for key in sorted(jobs)],
        flows=flows,
    )


def _cluster(cluster: ClusterFacts, flows: list[FlowHealth]) -> ClusterHealth:
    into = [flow for flow in flows if flow.destination == cluster.name]
    out = [flow for flow in flows if flow.source == cluster.name]
    return ClusterHealth(
        name=cluster.name,
        answers=cluster.answers,
        id=cluster.id,
        why=cluster.why,
        records_in_per_s=sum_known(flow.records_per_s for flow in into),
        bytes_in_per_s=sum_known(flow.bytes_per_s for flow in into),
        records_out_per_s=sum_known(flow.records_per_s for flow in out),
        bytes_out_per_s=sum_known(flow.bytes_per_s for flow in out),
        traffic=cluster.traffic,
    )


def _jobs(
    request: StatusRequest, now: StatusSnapshot, before: StatusSnapshot
) -> dict[tuple[str, str], JobReports]:
    """Returns the jobs by destination and name: the topology's, and others that hold one of its flows."""
    flows: dict[tuple[str, str], list[str]] = {}
    for flow in request.flows:
        flows.setdefault((flow.destination, request.jobs[flow.name]), []).append(flow.name)
        holder = _holder(request, flow, now)
        if holder != request.jobs[flow.name]:
            flows.setdefault((flow.destination, holder), []).append(flow.name)
    return {
        (destination, job): judge(
            job,
            destination,
            now.ledgers.get(destination),
            before.ledgers.get(destination),
            now.at_ms,
            before.ledgers_ms,
            names,
            request.standbys.get(job, 0),
        )
        for (destination, job), names in flows.items()
    }


def _holder(request: StatusRequest, flow: FlowSpec, now: StatusSnapshot) -> str:
    """Returns the job that holds the flow by the ledger.

    A flow that the job released belongs to the topology's job again.
    """
    ledger = now.ledgers.get(flow.destination)
    generation = ledger.generations.get(flow.name) if ledger is not None else None
    return (
        generation.job if generation is not None and generation.state in _HOLDS else request.jobs[flow.name]
    )
