"""Derives the output of `repl status` from two inspections. The data outweighs a job's reports. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from runtime.audit.status.facts import (
    ClusterFacts,
    FlowStatusRequest,
    LedgerFacts,
    StatusRequest,
    StatusSnapshot,
)
from runtime.audit.status.flow import FlowFacts, flow_view
from runtime.audit.status.jobs import JobFacts, judge
from runtime.contract.records.failback import handed_over
from runtime.contract.records.ledger import Generation, PartitionKey, Progress
from runtime.contract.spec.selection import NamePatterns
from runtime.contract.views.status_view import ClusterStatusView, FlowStatusView, StatusView

_CURRENT = ("active", "paused")
_NOTHING = LedgerFacts()


def join(asked: StatusRequest, now: StatusSnapshot, before: StatusSnapshot | None = None) -> StatusView:
    """Derives the status. `before` is an earlier inspection.

    Rates are computed from the changes since then, and a heartbeat that moved since then shows a live job.
    """
    before = before if before is not None else now
    jobs = _jobs(asked, now, before)
    return StatusView(
        topology=asked.topology,
        at_ms=now.at_ms,
        over_ms=now.at_ms - before.at_ms,
        clusters=[
            ClusterStatusView(name=one.name, answers=one.answers, id=one.id, why=one.why)
            for _, one in sorted(now.clusters.items())
        ],
        jobs=[jobs[key].seen for key in sorted(jobs)],
        flows=[_flow(asked, flow, jobs, now, before) for flow in asked.flows],
    )


def _jobs(
    asked: StatusRequest, now: StatusSnapshot, before: StatusSnapshot
) -> dict[tuple[str, str], JobFacts]:
    """Returns the jobs by destination and name: the topology's, and others that hold one of its flows."""
    flows: dict[tuple[str, str], list[str]] = {}
    for flow in asked.flows:
        flows.setdefault((flow.destination, flow.job), []).append(flow.name)
        holder = _holder(flow, now.ledgers.get(flow.destination))
        if holder != flow.job:
            flows.setdefault((flow.destination, holder), []).append(flow.name)
    return {
        (destination, job): judge(
            job,
            destination,
            now.ledgers.get(destination),
            before.ledgers.get(destination),
            now.at_ms,
            before.at_ms,
            names,
            asked.standbys.get(job, 0),
        )
        for (destination, job), names in flows.items()
    }


def _holder(flow: FlowStatusRequest, ledger: LedgerFacts | None) -> str:
    """Returns the job that holds the flow by the ledger.

    A flow that the job released belongs to the topology's job again.
    """
    generation = ledger.generations.get(flow.name) if ledger is not None else None
    return generation.job if generation is not None and generation.state in _CURRENT else flow.job


def _flow(
    asked: StatusRequest,
    flow: FlowStatusRequest,
    jobs: Mapping[tuple[str, str], JobFacts],
    now: StatusSnapshot,
    before: StatusSnapshot,
) -> FlowStatusView:
    found = now.ledgers.get(flow.destination)
    ledger = found or _NOTHING
    earlier = before.ledgers.get(flow.destination, _NOTHING)
    source = now.clusters[flow.source]
    progress = ledger.progress.get(flow.name, {})
    names = _names(asked, flow, source, progress)
    generation = ledger.generations.get(flow.name)
    promoted = NamePatterns(generation.promoted if generation is not None else ())
    return flow_view(
        FlowFacts(
            asked=flow,
            source=source,
            destination=now.clusters[flow.destination],
            read=found is not None,
            progress=progress,
            before=earlier.progress.get(flow.name, {}),
            generation=generation,
            job=jobs[flow.destination, _holder(flow, found)],
            names=names,
            promoted=frozenset(topic for topic in names if promoted.match(topic)),
            handed_over=_handed_over(flow, generation, now),
            now_ms=now.at_ms,
            elapsed_ms=now.at_ms - before.at_ms,
        )
    )


def _handed_over(flow: FlowStatusRequest, generation: Generation | None, now: StatusSnapshot) -> bool:
    back = now.ledgers.get(flow.source, _NOTHING).generations.get(flow.opposite or "")
    return generation is not None and back is not None and handed_over(generation, back)


def _names(
    asked: StatusRequest,
    flow: FlowStatusRequest,
    source: ClusterFacts,
    progress: Mapping[PartitionKey, Progress],
) -> dict[str, str | None]:
    """Returns the topics that the flow takes or has copied, with their names at the destination."""
    names: dict[str, str | None] = dict(asked.selected(flow, source.topics or {}))
    for key, state in progress.items():
        if asked.router.destination_topic(flow.name, key.topic) is not None:
            names[key.topic] = state.destination_topic
    return names
