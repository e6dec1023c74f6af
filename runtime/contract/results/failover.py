"""Decides whether a failover of a cluster is safe now, from the results of status. Pure.

The field names are those of `--json`: they are only ever added. A verdict is never better than what is known:
a cluster that does not answer, or a partition whose end is unknown, is never `safe`.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec

from runtime.contract.records.job_status import PartitionState as S
from runtime.contract.results.groups import FlowLoss, loss_of
from runtime.contract.results.status import (
    DOWN,
    STALLED,
    UNKNOWN,
    FlowHealth,
    JobHealth,
    PartitionHealth,
    ReplicationStatus,
)

_MAY_FAIL_OVER = ("active", "paused")
# In these states nothing is copied: records that are produced from now on would be lost too.
_NOT_COPYING = frozenset(
    {DOWN, STALLED, UNKNOWN, S.PAUSED, S.RETRYING, S.UNSCHEDULED, S.BLOCKED_AT_SOURCE}
    | {state for state in S if state.needs_someone}
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


def verdicts(status: ReplicationStatus) -> list[FailoverVerdict]:
    """Returns the verdict of each cluster that flows copy from, the worst first.

    Flows into files are left out: nothing fails over to files.
    """
    clusters = {one.name for one in status.clusters}
    flows = [flow for flow in status.flows if flow.destination in clusters]
    jobs = {(job.name, job.destination): job for job in status.jobs}
    sources = sorted({flow.source for flow in flows})
    found = [
        _verdict(one, [flow for flow in flows if flow.source == one], jobs, status.at_ms) for one in sources
    ]
    return sorted(found, key=lambda one: (_RANK[one.verdict], one.cluster))


def _verdict(
    cluster: str,
    flows: Sequence[FlowHealth],
    jobs: dict[tuple[str, str], JobHealth],
    now_ms: int,
) -> FailoverVerdict:
    ending = [flow for flow in flows if flow.declared in _MAY_FAIL_OVER]
    if not ending:
        states = Counter(flow.declared for flow in flows)
        because = [f"{number} {state.replace('_', ' ')}" for state, number in sorted(states.items())]
        return _made(
            cluster, Verdict.ENDED, [], [], because, answers=all(one.source_answers for one in flows)
        )
    losses = [loss_of(flow, now_ms) for flow in ending]
    because = [
        *_silent(ending, losses),
        *_unheard(losses),
        *_jobs(ending, jobs),
        *_stopped(ending),
        *_lag(ending),
    ]
    answers = all(flow.source_answers for flow in ending)
    return _made(
        cluster,
        _judged(ending, losses, answers=answers),
        [one.name for one in ending],
        losses,
        because,
        answers=answers,
    )


def _made(
    cluster: str,
    verdict: Verdict,
    flows: list[str],
    losses: Sequence[FlowLoss],
    because: list[str],
    *,
    answers: bool,
) -> FailoverVerdict:
    records = [one.records for one in losses if one.records is not None]
    times = [one.as_of_ms for one in losses if one.as_of_ms is not None]
    return FailoverVerdict(
        cluster=cluster,
        verdict=verdict,
        records=sum(records) if records else None,
        ms=max((one.ms for one in losses if one.ms is not None), default=None),
        as_of_ms=min(times, default=None) if not answers else None,
        answers=answers,
        flows=flows,
        because=because,
    )


def _judged(flows: Sequence[FlowHealth], losses: Sequence[FlowLoss], *, answers: bool) -> Verdict:
    if any(not one.destination_answers or one.records is None or one.unheard for one in losses):
        return Verdict.UNKNOWN
    found = {_of_flow(flow, loss) for flow, loss in zip(flows, losses, strict=True)}
    found |= set() if answers else {Verdict.LOSES}
    return next(one for one in Verdict if one in found)


def _of_flow(flow: FlowHealth, loss: FlowLoss) -> Verdict:
    if loss.records:
        if flow.rpo_ms is None or loss.ms is None:
            return Verdict.LOSES
        return Verdict.WITHIN_RPO if loss.ms <= flow.rpo_ms else Verdict.BEYOND_RPO
    if loss.partitions and not any(state in _NOT_COPYING for state in flow.states):
        return Verdict.SAFE
    return Verdict.NOT_COPYING


def _silent(flows: Sequence[FlowHealth], losses: Sequence[FlowLoss]) -> Iterator[str]:
    """Yields the clusters that do not answer."""
    for name in sorted({flow.destination for flow in flows if not flow.destination_answers}):
        yield f"{name} does not answer: what has arrived there is not known"
    silent = sorted({flow.source for flow in flows if not flow.source_answers})
    for name in silent:
        known = any(one.records is not None for one in losses)
        yield f"{name} does not answer: " + (
            "its ends are those that the jobs saw last, there may be more"
            if known
            else "its ends are not known"
        )


def _unheard(losses: Sequence[FlowLoss]) -> Iterator[str]:
    """Yields the flows with partitions whose loss is unknown, with one of the reasons."""
    found = [one for one in losses if one.unheard and one.destination_answers]
    for one in found[:_MOST]:
        first = one.unheard_partitions[0]
        yield (
            f"{one.flow}: of {one.unheard:,} of {one.partitions:,} partitions nothing is known"
            f" ({first.topic}-{first.partition}: {first.why})"
        )
    if len(found) > _MOST:
        yield f"{len(found) - _MOST} more flows have partitions of which nothing is known"


def _jobs(flows: Sequence[FlowHealth], jobs: dict[tuple[str, str], JobHealth]) -> Iterator[str]:
    """Yields the jobs that do not run: a failover starts them first."""
    names = sorted({(flow.job, flow.destination) for flow in flows if flow.destination_answers})
    for job in (jobs[key] for key in names if key in jobs):
        if not job.up:
            yield f"job {job.name} is {job.state}" + (f": {job.why}" if job.why else "")


def _stopped(flows: Sequence[FlowHealth]) -> Iterator[str]:
    """Yields the states in which partitions are not copied, except those of a job that is down."""
    told = []
    for flow in flows:
        if not flow.destination_answers:
            continue
        for state, number in flow.states.items():
            if state == S.RETRYING and not flow.source_answers:
                continue  # it retries because of that, which is said already
            if state in _NOT_COPYING and state not in (DOWN, UNKNOWN):
                first = next(one for one in flow.partitions if one.state == state)
                told.append(f"{flow.name}: {_partitions(number)} {state}, {_first(first)}")
    yield from told[:_MOST]
    if len(told) > _MOST:
        yield f"{len(told) - _MOST} more flows have partitions that are not copied"


def _first(one: PartitionHealth) -> str:
    return f"{one.topic}-{one.partition}" + (f" ({one.why})" if one.why else "")


def _partitions(number: int) -> str:
    return "1 partition is" if number == 1 else f"{number:,} partitions are"


def _lag(flows: Sequence[FlowHealth]) -> Iterator[str]:
    """Yields the flows that are beyond their RPO, and those that are behind without a declared RPO."""
    late = [flow for flow in flows if flow.rpo_met is False]
    for flow in late[:_MOST]:
        yield f"{flow.name} is {(flow.lag_ms or 0) / 1000:,.1f} s behind, its RPO is {_seconds(flow.rpo_ms)}"
    if len(late) > _MOST:
        yield f"{len(late) - _MOST} more flows are beyond their RPO"
    undeclared = [flow.name for flow in flows if flow.rpo_ms is None and flow.lag_records]
    if undeclared:
        more = f" and {len(undeclared) - 1} more flows" if len(undeclared) > 1 else ""
        yield f"no RPO is declared for {undeclared[0]}{more}"


def _seconds(ms: int | None) -> str:
    return f"{(ms or 0) / 1000:g} s"
