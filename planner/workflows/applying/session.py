"""Executes one plan: the leases, the check that it still holds, the journal, and the steps.

Only the holder of the lease changes a cluster: an apply, or a replay of salvaged records.
"""

import getpass
import os
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from confluent_kafka import KafkaException
from msgspec import Struct, field

from planner.apply import execute
from planner.apply.context import (
    ApplyContext,
    BackupRestorer,
    Launchers,
    NoRestorer,
    RequestGuard,
    no_launchers,
)
from planner.apply.executor import Interruption
from planner.kafka import ClusterEndpoint, explain, producer
from planner.model.diagnostic import Failure, error, note, warning
from planner.model.observed import Observed, ObservedCluster, Unreachable
from planner.model.plan import Plan, digest
from planner.model.step import (
    DONE,
    NOTHING_DONE,
    ApplyRecord,
    ApplySummary,
    Event,
    Result,
    Step,
    StepOutcome,
    StepResult,
    StepsEnded,
    StepsSent,
)
from planner.observe import Observer
from planner.plan.recheck import recheck, required_keys
from planner.plan.staleness import compared_keys, no_longer_done, other_clusters, read_request, stale
from planner.state import internal_topics
from planner.state.history import Journal, merge, read_history
from planner.state.internal_topics import RegistryWriter, read_registry
from planner.state.lease import TTL_MS, Lease, LeaseHolder
from planner.workflows.interaction import (
    ApplyEnded,
    ApplyStarted,
    Interrupts,
    LeaseAwaited,
    Noticed,
    ProgressHandler,
    StepWaits,
    UnexpectedError,
    traceback_reporter,
    without_signals,
)
from runtime.contract.spec import naming
from runtime.contract.views.status_view import PartitionWaits


def leased(
    endpoint: ClusterEndpoint,
    *,
    name: str,
    topology: str,
    plan: str,
    lock_timeout_ms: int,
    progress: ProgressHandler,
    ttl_ms: int = TTL_MS,
) -> Lease:
    """Acquires the lease of a cluster. Failure where another holder keeps it beyond the lock timeout.

    `name` identifies the holder, `plan` what the holder executes.
    """
    holder = LeaseHolder(
        id=f"{name}-{uuid.uuid4().hex[:6]}",
        user=user(),
        host=socket.gethostname(),
        pid=os.getpid(),
        topology=topology,
        plan=plan,
    )
    return Lease(endpoint, holder, ttl_ms).acquire(
        lock_timeout_ms / 1000, lambda held: progress(LeaseAwaited(endpoint.cluster, held))
    )


def user() -> str:
    """Returns the name of the user, or the user id in a container without names."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def git_commit(folder: Path, *, edited: bool) -> str | None:
    """Returns the commit of the topology's folder, marked `-dirty` if it was edited; None outside of Git."""
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


class PlanRecheck(Struct, frozen=True):
    """Reads what a plan depends on. `timeout_ms`: how long a cluster may keep silent."""

    endpoints: Mapping[str, ClusterEndpoint]
    timeout_ms: int

    def refuse_others(self, plan: Plan, written: Iterable[str]) -> None:
        """Failure where a cluster that the plan changes is another one than is meant, or does not answer."""
        with self._observer(plan, written) as observer:
            found = observer.identities()
        refuse_silent(found)
        others = other_clusters(plan, {name: one for name, one in found.items() if isinstance(one, str)})
        if others:
            raise Failure(others)

    def again(self, plan: Plan, written: Iterable[str]) -> Observed:
        """Reads what the plan was made from and policies name. Failure where a changed cluster is silent."""
        keys = compared_keys(plan.steps, plan.changes)
        wanted = read_request(plan.connections, keys, required_keys(plan.policies))
        with self._observer(plan, plan.connections) as observer:
            observed = observer.details(observer.names(), wanted)
        refuse_silent({name: observed.clusters[name] for name in written})
        return observed

    def _observer(self, plan: Plan, clusters: Iterable[str]) -> Observer:
        return Observer(
            {name: plan.connections[name] for name in clusters},
            self.endpoints,
            timeout_s=self.timeout_ms / 1000,
            read_registry=read_registry,
            jobs_of=plan.topology,
        )


def refuse_silent(found: Mapping[str, str | ObservedCluster | Unreachable]) -> None:
    """Failure where a cluster that the plan changes does not answer."""
    silent = [one for one in found.values() if isinstance(one, Unreachable)]
    if silent:
        raise Failure(
            error(
                f"{one.name} does not answer, and the plan changes it: {one.why}",
                one.way_out or f"bring {one.name} back, then run this again",
            )
            for one in silent
        )


INTERNAL = (naming.REGISTRY, naming.LEASE, naming.HISTORY)


class ApplySession(Struct, frozen=True):
    """What one execution of a plan needs besides the plan."""

    endpoints: Mapping[str, ClusterEndpoint]
    recheck: PlanRecheck
    lock_timeout_ms: int
    progress: ProgressHandler
    folder: Path  # the topology's, whose commit the history records
    interrupts: Interrupts = without_signals
    lease_ttl_ms: int = TTL_MS
    launchers: Launchers = no_launchers
    restorer: BackupRestorer = field(default_factory=NoRestorer)
    wait: bool = True
    errors: Path | None = None  # the folder of tracebacks
    write: Callable[[], None] | None = None  # writes what the plan was made from, before the first step
    waiting: Callable[[Plan], Sequence[PartitionWaits]] = lambda _: ()  # partitions that no apply continues


def carry_out(plan: Plan, session: ApplySession) -> ApplyEnded:
    """Executes exactly the plan's steps, under the leases of the clusters that they change.

    Failure: the plan does not hold any more, a lease is held by another apply, or the journal can't be
    written.
    """
    written = sorted({step.cluster for step in plan.steps})
    applied = _applied(plan, written, session)
    session.recheck.refuse_others(plan, written)  # a saved plan's address may lead elsewhere by now
    with ExitStack() as held:
        for cluster in written:
            internal_topics.ensure(session.endpoints[cluster], INTERNAL, plan.internal)
        leases = {cluster: held.enter_context(_leased(applied, session, cluster)) for cluster in written}
        applied = replace(applied, started_ms=_now_ms())  # waiting for the leases is no part of the apply
        before = _earlier(plan, session, written)
        remaining = _still_true(plan, session, written, before)
        if before is not None and not remaining:
            return _done_already(plan, session, before)
        summary = _execute(plan, remaining, before, applied, session, leases)
    waits = session.waiting(plan) if summary.complete else ()
    return ApplyEnded(plan, summary, applied.id, tuple(waits))


def _done_already(plan: Plan, session: ApplySession, before: ApplyRecord) -> ApplyEnded:
    """A plan that was applied to its end, applied again: nothing is to do, and no history records it."""
    done = note(f"all {len(plan.steps)} steps of this plan were done by the apply {before.id}")
    session.progress(Noticed(done))
    return ApplyEnded(plan, NOTHING_DONE, None, tuple(session.waiting(plan)))


def _applied(plan: Plan, written: Sequence[str], session: ApplySession) -> ApplyRecord:
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
        git=git_commit(session.folder, edited=session.write is not None),
        clusters={cluster: plan.clusters[cluster] for cluster in written},
        total=len(plan.steps),
        started_ms=now_ms,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _leased(applied: ApplyRecord, session: ApplySession, cluster: str) -> Lease:
    return leased(
        session.endpoints[cluster],
        name=applied.id,
        topology=applied.topology,
        plan=applied.plan,
        lock_timeout_ms=session.lock_timeout_ms,
        progress=session.progress,
        ttl_ms=session.lease_ttl_ms,
    )


def _earlier(plan: Plan, session: ApplySession, written: Sequence[str]) -> ApplyRecord | None:
    """Returns what earlier applies of this plan did, whether or not they were complete."""
    histories = [
        read_history(session.endpoints[cluster], lambda one: session.progress(Noticed(one)))
        for cluster in written
    ]
    same = [one for one in merge(histories) if one.plan == digest(plan)]
    if not same:
        return None
    together = same[0]
    for one in same[1:]:
        done = {
            step_id: outcome
            for step_id, outcome in one.outcomes.items()
            if outcome.result == Result.DONE.value
        }
        together = replace(one, outcomes={**one.outcomes, **together.outcomes, **done})
    return together


def _still_true(
    plan: Plan, session: ApplySession, written: Sequence[str], before: ApplyRecord | None
) -> tuple[Step, ...]:
    """Returns the steps that are left. What an earlier apply of the plan did does not make it stale while it
    is still so.
    """
    done = _done_before(before)
    sent = _sent_before(before)
    touched = {step.address for step in plan.steps if step.id in sent}
    remaining = tuple(step for step in plan.steps if step.id not in done)
    observed = session.recheck.again(plan, written)
    problems = recheck(plan, remaining, observed) or (
        *stale(plan, observed, touched),
        *no_longer_done(plan.steps, done, observed),
    )
    if problems:
        raise Failure(problems)
    if done and len(done) < len(plan.steps):
        earlier = note(f"{len(done)} of {len(plan.steps)} steps of this plan were done by an earlier apply")
        session.progress(Noticed(earlier))
    return remaining


def _done_before(before: ApplyRecord | None) -> frozenset[str]:
    outcomes = before.outcomes if before else {}
    return frozenset(step_id for step_id, outcome in outcomes.items() if outcome.result == Result.DONE.value)


def _sent_before(before: ApplyRecord | None) -> frozenset[str]:
    """Returns the steps that may have changed something, whatever is known of their answers."""
    outcomes = before.outcomes if before else {}
    never = (Result.SKIPPED.value, Result.NOT_STARTED.value)
    return frozenset(step_id for step_id, outcome in outcomes.items() if outcome.result not in never)


def _execute(
    plan: Plan,
    remaining: Sequence[Step],
    before: ApplyRecord | None,
    applied: ApplyRecord,
    session: ApplySession,
    leases: Mapping[str, Lease],
) -> ApplySummary:
    done = _done_before(before)
    producers = {cluster: producer(session.endpoints[cluster]) for cluster in leases}
    journal = Journal(applied, producers)
    interruption = Interruption()
    report = traceback_reporter(
        session.errors, applied.id, lambda text: session.progress(UnexpectedError(text))
    )

    def stop_reason(cluster: str) -> Callable[[], str | None]:
        return lambda: interruption.reason() or leases[cluster].lost(interruption.reason)

    context = {
        cluster: ApplyContext(
            endpoint=session.endpoints[cluster],
            registry=RegistryWriter(producers[cluster]),
            guard=RequestGuard(stop_reason(cluster)),
            plan_digest=applied.plan,
            now_ms=_now_ms,
            launchers=session.launchers,
            restorer=session.restorer,
            wait=session.wait,
            on_wait=lambda step, what: session.progress(StepWaits(step, what)),
        )
        for cluster in leases
    }

    def tell(event: Event) -> None:
        match event:
            case StepsSent():
                journal.sent(event.cluster, [step.id for step in event.steps])
                session.progress(event)
            case StepsEnded():
                journal.ended(event.cluster, {one.step.id: _step_result(one) for one in event.outcomes})
                session.progress(event)

    with session.interrupts(interruption):
        _begin(journal, plan)
        _write_first(journal, session)
        session.progress(ApplyStarted(plan))
        summary = execute(remaining, context, tell, interruption, report)
        left_out = {step.id: StepOutcome(step, DONE.result) for step in plan.steps if step.id in done}
        summary = replace(summary, outcomes={**left_out, **summary.outcomes})
        _finish(journal, summary, session.progress)
    return summary


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


def _write_first(journal: Journal, session: ApplySession) -> None:
    """Writes the topology's files before the first step. If they can't be written, nothing is applied."""
    if session.write is None:
        return
    try:
        session.write()
    except Failure:
        with suppress(KafkaException, TimeoutError):
            journal.finish("failed", _now_ms())
        raise


def _step_result(outcome: StepOutcome) -> StepResult:
    return StepResult(outcome.result.value, outcome.why, outcome.seconds)


def _finish(journal: Journal, summary: ApplySummary, progress: ProgressHandler) -> None:
    result = "done" if summary.complete else "interrupted" if summary.interrupted else "failed"
    try:
        journal.finish(result, _now_ms())
    except (KafkaException, TimeoutError) as failure:
        unwritten = f"how the apply ended could not be written to its history: {explain(failure)}"
        progress(Noticed(warning(unwritten)))
