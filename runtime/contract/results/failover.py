"""Decides whether a failover of a cluster is safe now, from the results of status. Pure.

The field names are those of `--json`: they are only ever added. A verdict is never better than what is known:
a cluster that does not answer, or a partition whose end is unknown, is never `safe`.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec

from runtime.contract.records.job_status import NEEDS_DECISION
from runtime.contract.records.job_status import PartitionState as S
from runtime.contract.results.groups import FlowLoss, loss_of
from runtime.contract.results.status import (
    DOWN,
    STALLED,
    UNKNOWN,
    FlowHealth,
    JobHealth,
    ReplicationStatus,
)

_MAY_FAIL_OVER = ("active", "paused")
# In these states nothing is copied: records that are produced from now on would be lost too.
_NOT_COPYING = frozenset(
    {DOWN, STALLED, UNKNOWN, S.PAUSED, S.RETRYING, S.UNSCHEDULED, S.BLOCKED_AT_SOURCE} | NEEDS_DECISION
)
_MOST = 4  # reasons of one kind; the others are counted


class Verdict(StrEnum):
    """Lists the verdicts, the worst first."""

    UNKNOWN = "unknown"
    BEYOND_RPO = "beyond_rpo"
    LOSES = "loses"  # no RPO is declared, or the cluster does not answer
    NOT_COPYING = "not_copying"  # nothing is lost now, and not everything is being copied
    WITHIN_RPO = "within_rpo"
    SAFE = "safe"
    ENDED = "ended"  # its flows were failed over or promoted


_RANK = {verdict: rank for rank, verdict in enumerate(Verdict)}
# Under load these two alternate: their order would change with each reading.
_RANK[Verdict.SAFE] = _RANK[Verdict.WITHIN_RPO]


class FailoverVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Reports what a failover of `cluster` would lose, and why.

    `records` and `ms` are the least that would be lost. `as_of_ms` is set where the cluster does not answer:
    its end offsets are of that time. `flows` are those that the failover would end.
    """

    cluster: str
    verdict: Verdict
    records: int | None
    ms: int | None
    as_of_ms: int | None
    answers: bool
    flows: list[str]
    because: list[str]


class SchemaCheck(msgspec.Struct, kw_only=True):
    """Reports whether the schemas of a flow are in the registry of its destination.

    `records` are the last records of the mirrors, `schemas` counts those of them that were found. `versions`
    counts the compared versions of the source's subjects; None where its registry does not answer, and
    `source_unread` says why. `missing` names what the destination lacks; `uncertain` are numbers that may be
    ids of schemas or other bytes. `unread` is why the destination could not be read to the end.
    """

    flow: str
    source: str
    destination: str
    records: int = 0
    schemas: int = 0
    versions: int | None = None
    missing: list[str] = []
    uncertain: list[str] = []
    source_unread: str = ""
    unread: str = ""


def verdicts(status: ReplicationStatus) -> list[FailoverVerdict]:
    """Returns the verdict of each cluster that flows copy from, the worst first.

    Flows from and into files are left out: files do not fail over, and nothing fails over to them.
    """
    clusters = {cluster.name for cluster in status.clusters}
    flows = [flow for flow in status.flows if {flow.source, flow.destination} <= clusters]
    jobs = {(job.name, job.destination): job for job in status.jobs}
    judged = [
        _verdict(source, [flow for flow in flows if flow.source == source], jobs, status.at_ms)
        for source in sorted({flow.source for flow in flows})
    ]
    return sorted(judged, key=lambda verdict: (_RANK[verdict.verdict], verdict.cluster))


def _verdict(
    cluster: str,
    flows: Sequence[FlowHealth],
    jobs: dict[tuple[str, str], JobHealth],
    now_ms: int,
) -> FailoverVerdict:
    ending = [flow for flow in flows if flow.declared in _MAY_FAIL_OVER]
    losses = [loss_of(flow, now_ms) for flow in ending]
    answers = all(flow.source_answers for flow in ending or flows)
    if ending:
        because = [
            *_silent(ending, losses),
            *_unheard(losses),
            *_jobs(ending, jobs),
            *_stopped(ending),
            *_lag(ending),
        ]
    else:
        states = Counter(flow.declared for flow in flows)
        because = [f"{number} {state.replace('_', ' ')}" for state, number in sorted(states.items())]
    if not ending:
        verdict = Verdict.ENDED
    elif any(not loss.destination_answers or loss.records is None or loss.unheard for loss in losses):
        verdict = Verdict.UNKNOWN
    else:
        of_flows = {_of_flow(flow, loss) for flow, loss in zip(ending, losses, strict=True)}
        of_flows |= set() if answers else {Verdict.LOSES}
        verdict = min(of_flows, key=list(Verdict).index)
    records = [loss.records for loss in losses if loss.records is not None]
    times = [loss.as_of_ms for loss in losses if loss.as_of_ms is not None]
    return FailoverVerdict(
        cluster=cluster,
        verdict=verdict,
        records=sum(records) if records else None,
        ms=max((loss.ms for loss in losses if loss.ms is not None), default=None),
        as_of_ms=min(times, default=None) if not answers else None,
        answers=answers,
        flows=[flow.name for flow in ending],
        because=because,
    )


def _of_flow(flow: FlowHealth, loss: FlowLoss) -> Verdict:
    if loss.records:
        if flow.rpo_ms is None or loss.ms is None:
            return Verdict.LOSES
        return Verdict.WITHIN_RPO if loss.ms <= flow.rpo_ms else Verdict.BEYOND_RPO
    if loss.partitions and not any(state in _NOT_COPYING for state in flow.states):
        return Verdict.SAFE
    return Verdict.NOT_COPYING


def _most(reasons: Sequence[str], others: str) -> Iterator[str]:
    """Yields the first reasons, and how many others there are."""
    yield from reasons[:_MOST]
    if len(reasons) > _MOST:
        yield f"{len(reasons) - _MOST} more flows {others}"


def _silent(flows: Sequence[FlowHealth], losses: Sequence[FlowLoss]) -> Iterator[str]:
    """Yields the clusters that do not answer."""
    for name in sorted({flow.destination for flow in flows if not flow.destination_answers}):
        yield f"{name} does not answer: what has arrived there is not known"
    ends = "its ends are not known"
    if any(loss.records is not None for loss in losses):
        ends = "its ends are those that the jobs saw last, there may be more"
    for name in sorted({flow.source for flow in flows if not flow.source_answers}):
        yield f"{name} does not answer: {ends}"


def _unheard(losses: Sequence[FlowLoss]) -> Iterator[str]:
    """Yields the flows with partitions whose loss is unknown, with one of the reasons."""
    reasons = []
    for loss in losses:
        if loss.unheard and loss.destination_answers:
            first = loss.unheard_partitions[0]
            reasons.append(
                f"{loss.flow}: of {loss.unheard:,} of {loss.partitions:,} partitions nothing is known"
                f" ({first.topic}-{first.partition}: {first.why})"
            )
    yield from _most(reasons, "have partitions of which nothing is known")


def _jobs(flows: Sequence[FlowHealth], jobs: dict[tuple[str, str], JobHealth]) -> Iterator[str]:
    """Yields the jobs that do not run: a failover starts them first."""
    names = sorted({(flow.job, flow.destination) for flow in flows if flow.destination_answers})
    for job in (jobs[key] for key in names if key in jobs):
        if not job.up:
            yield f"job {job.name} is {job.state}" + (f": {job.why}" if job.why else "")


def _stopped(flows: Sequence[FlowHealth]) -> Iterator[str]:
    """Yields the states in which partitions are not copied, except those of a job that is down."""
    reasons = []
    for flow in flows:
        for state, number in flow.states.items() if flow.destination_answers else ():
            if state == S.RETRYING and not flow.source_answers:
                continue  # it retries because of that, which is said already
            if state in _NOT_COPYING and state not in (DOWN, UNKNOWN):
                first = next(partition for partition in flow.partitions if partition.state == state)
                how_many = "1 partition is" if number == 1 else f"{number:,} partitions are"
                why = f" ({first.why})" if first.why else ""
                reasons.append(f"{flow.name}: {how_many} {state}, {first.topic}-{first.partition}{why}")
    yield from _most(reasons, "have partitions that are not copied")


def _lag(flows: Sequence[FlowHealth]) -> Iterator[str]:
    """Yields the flows that are beyond their RPO, and those that are behind without a declared RPO."""
    late = [
        f"{flow.name} is {(flow.lag_ms or 0) / 1000:,.1f} s behind,"
        f" its RPO is {(flow.rpo_ms or 0) / 1000:g} s"
        for flow in flows
        if flow.rpo_met is False
    ]
    yield from _most(late, "are beyond their RPO")
    undeclared = [flow.name for flow in flows if flow.rpo_ms is None and flow.lag_records]
    if undeclared:
        more = f" and {len(undeclared) - 1} more flows" if len(undeclared) > 1 else ""
        yield f"no RPO is declared for {undeclared[0]}{more}"
