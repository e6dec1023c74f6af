"""Wires one apply: leases, the look whether the plan still holds, journal, executor, terminal."""

import os
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from planner.apply import execute
from planner.apply.context import ApplyContext, Launchers, no_launchers
from planner.apply.executor import Interruption
from planner.apply.retry import RequestGuard
from planner.cli.app import show
from planner.cli.apply_view import ApplyView
from planner.cli.interrupting import interruptible
from planner.cli.leasing import leased, user
from planner.cli.looking import PlanRecheck
from planner.cli.unexpected import reporting
from planner.kafka import ClusterEndpoint, explain, producer
from planner.model.diagnostic import ExitCode, Failure, error, note, warning
from planner.model.outcome import (
    DONE,
    NOTHING_DONE,
    ApplyRecord,
    ApplySummary,
    Event,
    Result,
    StepOutcome,
    StepResult,
    StepsEnded,
    StepsSent,
)
from planner.model.plan import Plan
from planner.model.step import LaunchJob, ReconfigureJob, Step
from planner.plan.agreement.fingerprint import stale
from planner.plan.agreement.still_done import no_longer_done
from planner.plan.guards.recheck import recheck, shown_as_running
from planner.plan.serialize import plain
from planner.state import log
from planner.state.history import Journal, merge, read_history
from planner.state.lease import Lease
from planner.state.lease_log import TTL_MS
from planner.state.planfile import digest, step_of
from planner.state.registry import RegistryWriter
from runtime.contract.spec import naming
from runtime.contract.views.status_view import PartitionWaits

INTERNAL = (naming.REGISTRY, naming.LEASE, naming.HISTORY)


@dataclass(frozen=True, slots=True)
class ApplySession:
    """What an apply needs besides its plan."""

    endpoints: Mapping[str, ClusterEndpoint]
    look: PlanRecheck
    lock_timeout_ms: int
    view: ApplyView
    finish_with: str  # the command that finishes what could not be finished
    folder: Path
    lease_ttl_ms: int = TTL_MS
    launchers: Launchers = no_launchers
    wait: bool = True
    errors: Path | None = None  # the folder of tracebacks; without one they go to stderr
    write: Callable[[], None] | None = None  # writes what the plan was made from, before the first step
    waiting: Callable[[Plan], Sequence[PartitionWaits]] = lambda _: ()  # what no apply lets go on


def carry_out(plan: Plan, applying: ApplySession) -> int:
    """Exactly the plan's steps, under the leases of the clusters that they write to; the exit code."""
    written = sorted({step.cluster for step in plan.steps})
    applied = _applied(plan, written, applying.folder, edited=applying.write is not None)
    applying.look.refuse_others(plan, written)  # a saved plan's address may lead elsewhere by now
    with ExitStack() as held:
        for cluster in written:
            log.ensure(applying.endpoints[cluster], INTERNAL, plan.internal)
        leases = {cluster: held.enter_context(_leased(applied, applying, cluster)) for cluster in written}
        applied = replace(applied, started_ms=_now_ms())  # waiting for the leases was not applying
        before = _earlier(plan, applying, written)
        remaining = _still_true(plan, applying, written, before)
        if before is not None and not remaining:
            return _done_already(plan, applying, before)
        summary = _execute(plan, remaining, before, applied, applying, leases)
    waits = applying.waiting(plan) if summary.complete else ()
    applying.view.closing(plan, summary, applied.id, applying.finish_with, waits)
    if summary.complete:
        return ExitCode.ERROR if waits else ExitCode.DONE
    return ExitCode.INTERRUPTED if summary.interrupted else ExitCode.ERROR


def _done_already(plan: Plan, applying: ApplySession, before: ApplyRecord) -> int:
    """A plan that was applied to its end, applied again: nothing is to do, and no history tells of it."""
    show([note(f"all {len(plan.steps)} steps of this plan were done by the apply {before.id}")])
    waits = applying.waiting(plan)
    applying.view.closing(plan, NOTHING_DONE, None, applying.finish_with, waits)
    return ExitCode.ERROR if waits else ExitCode.DONE


def _applied(plan: Plan, written: Sequence[str], folder: Path, *, edited: bool) -> ApplyRecord:
    now_ms = _now_ms()
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now_ms / 1000))
    return ApplyRecord(
        id=f"{stamp}-{uuid.uuid4().hex[:6]}",
        topology=plan.topology,
        mode=plan.mode.value,
        plan=digest(plan),
        user=user(),
        host=socket.gethostname(),
        pid=os.getpid(),
        git=_git_commit(folder, edited=edited),
        clusters={cluster: plan.clusters[cluster] for cluster in written},
        total=len(plan.steps),
        started_ms=now_ms,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _git_commit(folder: Path, *, edited: bool) -> str | None:
    """The commit that the topology stands at, with a mark where it was edited since; None outside of Git."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        edited = edited or bool(_git(folder, "status", "--porcelain", "--", "."))
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}-dirty" if edited else commit


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=True
    )
    return done.stdout.strip()


def _leased(applied: ApplyRecord, applying: ApplySession, cluster: str) -> Lease:
    return leased(
        applying.endpoints[cluster],
        name=applied.id,
        topology=applied.topology,
        plan=applied.plan,
        lock_timeout_ms=applying.lock_timeout_ms,
        ttl_ms=applying.lease_ttl_ms,
    )


def _earlier(plan: Plan, applying: ApplySession, written: Sequence[str]) -> ApplyRecord | None:
    """What applies of this very plan did before, whether or not they got to its end."""
    told = [
        read_history(applying.endpoints[cluster], step_of, lambda one: show([one])) for cluster in written
    ]
    same = [one for one in merge(told) if one.plan == digest(plan)]
    if not same:
        return None
    together = same[0]
    for one in same[1:]:
        done = {step_id: told for step_id, told in one.outcomes.items() if told.result == Result.DONE.value}
        together = replace(one, outcomes={**one.outcomes, **together.outcomes, **done})
    return together


def _still_true(
    plan: Plan, applying: ApplySession, written: Sequence[str], before: ApplyRecord | None
) -> tuple[Step, ...]:
    """The steps that are left to do. What an earlier apply of the plan did is not held against it while it is
    still so.
    """
    done = _done_before(before)
    sent = _sent_before(before)
    touched = {step.address for step in plan.steps if step.id in sent}
    untouched = tuple(one for one in plan.fingerprints if one.address not in touched)
    remaining = tuple(step for step in plan.steps if step.id not in done)
    observed = applying.look.again(plan, written)
    problems = recheck(plan, remaining, observed) or (
        *stale(replace(plan, fingerprints=untouched), observed),
        *no_longer_done(plan.steps, done, observed),
    )
    if before is None:
        problems = problems or tuple(shown_as_running(plan, observed))
    if problems:
        raise Failure(problems)
    if done and len(done) < len(plan.steps):
        show([note(f"{len(done)} of {len(plan.steps)} steps of this plan were done by an earlier apply")])
    return remaining


def _done_before(before: ApplyRecord | None) -> frozenset[str]:
    outcomes = before.outcomes if before else {}
    return frozenset(step_id for step_id, told in outcomes.items() if told.result == Result.DONE.value)


def _sent_before(before: ApplyRecord | None) -> frozenset[str]:
    """Steps that may have changed something, whatever is known of their answers."""
    outcomes = before.outcomes if before else {}
    never = (Result.SKIPPED.value, Result.NOT_STARTED.value)
    return frozenset(step_id for step_id, told in outcomes.items() if told.result not in never)


def _execute(
    plan: Plan,
    remaining: Sequence[Step],
    before: ApplyRecord | None,
    applied: ApplyRecord,
    applying: ApplySession,
    leases: Mapping[str, Lease],
) -> ApplySummary:
    done = _done_before(before)
    producers = {cluster: producer(applying.endpoints[cluster]) for cluster in leases}
    journal = Journal(applied, producers, _noted)
    interruption = Interruption()

    def stop_reason(cluster: str) -> Callable[[], str | None]:
        return lambda: interruption.reason() or leases[cluster].lost()

    context = {
        cluster: ApplyContext(
            endpoint=applying.endpoints[cluster],
            registry=RegistryWriter(producers[cluster]),
            guard=RequestGuard(stop_reason(cluster)),
            plan_digest=applied.plan,
            now_ms=_now_ms,
            launchers=applying.launchers,
            wait=applying.wait,
            on_wait=applying.view.waits,
        )
        for cluster in leases
    }

    def tell(event: Event) -> None:
        match event:
            case StepsSent():
                journal.sent(event.cluster, [step.id for step in event.steps])
                applying.view.sent(event)
            case StepsEnded():
                journal.ended(event.cluster, {one.step.id: _told(one) for one in event.outcomes})
                applying.view.ended(event)

    with interruptible(interruption):
        _begin(journal, plan)
        _write_first(journal, applying)
        applying.view.begin(plan)
        summary = execute(remaining, context, tell, interruption, reporting(applying.errors, applied.id))
        left_out = {step.id: StepOutcome(step, DONE.result) for step in plan.steps if step.id in done}
        summary = replace(summary, outcomes={**left_out, **summary.outcomes})
        _finish(journal, summary)
    return summary


def _noted(step: Step) -> Any:
    """A record of the journal has its limit; what a job runs by stands with its flows in the registry."""
    match step:
        case LaunchJob() | ReconfigureJob():
            return plain(replace(step, spec="{}", needs=()))
        case _:
            return plain(step)


def _begin(journal: Journal, plan: Plan) -> None:
    try:
        journal.begin(plan.steps)
    except (KafkaException, TimeoutError) as failure:
        raise Failure(
            error(
                f"the journal of this apply cannot be written, so nothing was changed: {explain(failure)}",
                f"the topic {naming.HISTORY} needs a leader and enough replicas in sync; then apply again",
            )
        ) from failure


def _write_first(journal: Journal, applying: ApplySession) -> None:
    """The topology's files say what is applied before anything of it is; else nothing is applied."""
    if applying.write is None:
        return
    try:
        applying.write()
    except Failure:
        with suppress(KafkaException, TimeoutError):
            journal.finish("failed", _now_ms())
        raise


def _told(outcome: StepOutcome) -> StepResult:
    return StepResult(outcome.result.value, outcome.why, outcome.seconds)


def _finish(journal: Journal, summary: ApplySummary) -> None:
    result = "done" if summary.complete else "interrupted" if summary.interrupted else "failed"
    try:
        journal.finish(result, _now_ms())
    except (KafkaException, TimeoutError) as failure:
        show([warning(f"how the apply ended could not be written to its history: {explain(failure)}")])
