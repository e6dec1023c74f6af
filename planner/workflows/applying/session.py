"""Executes one plan: the leases, the check that it still holds, the journal, and the steps.

Only the holder of the lease changes a cluster: an apply, or a replay of salvaged records.
"""

import asyncio
import getpass
import os
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

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
from planner.kafka import ClusterClient, ClusterEndpoint, ClusterFailure, run
from planner.kafka.log import LogWriter
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
from planner.observe import ReadOptions, identities, observe
from planner.plan.recheck import recheck, required_keys
from planner.plan.staleness import compared_keys, no_longer_done, other_clusters, read_request, stale
from planner.state import internal_topics
from planner.state.history import Journal, merge, read_history
from planner.state.internal_topics import RegistryWriter, read_registry
from planner.state.lease import TTL_MS, Lease, LeaseHolder, LeaseState
from planner.workflows.interaction import (
    ApplyEnded,
    ApplyStarted,
    Interrupts,
    Noticed,
    ProgressHandler,
    ProgressText,
    StepWaits,
    traceback_reporter,
    without_signals,
)
from runtime.contract.results.status import PartitionWaits
from runtime.contract.spec import naming
from runtime.contract.spec.topic_settings import InternalSpec


def lease_of(
    endpoint: ClusterEndpoint, *, name: str, topology: str, plan: str, ttl_ms: int = TTL_MS
) -> Lease:
    """Returns the lease of a cluster for this process. `name` identifies it, `plan` what it executes."""
    holder = LeaseHolder(
        id=f"{name}-{uuid.uuid4().hex[:6]}",
        user=user(),
        host=socket.gethostname(),
        pid=os.getpid(),
        topology=topology,
        plan=plan,
    )
    return Lease(endpoint, holder, ttl_ms)


async def acquired(lease: Lease, lock_timeout_ms: int, progress: ProgressHandler) -> Lease:
    """Acquires the lease. Failure where another holder keeps it beyond the lock timeout."""
    return await lease.acquire(
        lock_timeout_ms / 1000, lambda held: progress(ProgressText(wait_text(lease.cluster, held)))
    )


def wait_text(cluster: str, held: LeaseState) -> str:
    since = time.strftime("%H:%M:%S UTC", time.gmtime(held.since_ms / 1000))
    holder = f"{held.holder.user}@{held.holder.host}, pid {held.holder.pid}"
    return f"Waiting for another apply to {cluster}: {holder}, since {since} ..."


@contextmanager
def leased(
    endpoint: ClusterEndpoint,
    internal: InternalSpec,
    *,
    name: str,
    topology: str,
    plan: str,
    lock_timeout_ms: int,
    progress: ProgressHandler,
) -> Iterator[None]:
    """Holds the lease of a cluster while the caller blocks, for example until a Spark application has ended.

    The loop that renews the lease runs in a thread. Failure as of `acquired`.
    """
    granted: Future[None] = Future()
    ended = threading.Event()

    async def hold() -> None:
        async with ClusterClient(endpoint) as client:
            await internal_topics.ensure(client, [naming.LEASE], internal)
        lease = lease_of(endpoint, name=name, topology=topology, plan=plan)
        async with await acquired(lease, lock_timeout_ms, progress):
            granted.set_result(None)
            await asyncio.to_thread(ended.wait)

    def serve() -> None:
        try:
            run(hold())
        except Exception as failure:  # noqa: BLE001  raised in the caller's thread
            if not granted.done():
                granted.set_exception(failure)

    holder = threading.Thread(target=serve, name=f"lease-{endpoint.cluster}", daemon=True)
    holder.start()
    granted.result()
    try:
        yield
    finally:
        ended.set()
        holder.join()


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

    async def refuse_others(self, plan: Plan, written: Iterable[str]) -> None:
        """Failure where a cluster that the plan changes is another one than is meant, or does not answer."""
        clusters = {name: plan.connections[name] for name in written}
        found = await identities(clusters, self.endpoints, ReadOptions(self.timeout_ms / 1000))
        refuse_silent(found)
        others = other_clusters(plan, {name: one for name, one in found.items() if isinstance(one, str)})
        if others:
            raise Failure(others)

    async def again(self, plan: Plan, written: Iterable[str]) -> Observed:
        """Reads what the plan was made from and policies name. Failure where a changed cluster is silent."""
        keys = compared_keys(plan.steps, plan.changes)
        wanted = read_request(plan.connections, keys, required_keys(plan.policies))
        options = ReadOptions(self.timeout_ms / 1000, read_registry=read_registry, jobs_of=plan.topology)
        observed = await observe(plan.connections, self.endpoints, lambda _: wanted, options)
        refuse_silent({name: observed.clusters[name] for name in written})
        return observed


def refuse_silent(found: Mapping[str, str | ObservedCluster | Unreachable]) -> None:
    """Failure where a cluster that the plan changes does not answer."""
    silent = [one for one in found.values() if isinstance(one, Unreachable)]
    if silent:
        raise Failure(
            error(
                f"{one.name} does not answer, and the plan changes it: {one.why}",
                one.hint or f"bring {one.name} back, then run this again",
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
    summary, apply_id = run(_carry_out(plan, session))
    waits = session.waiting(plan) if summary.complete else ()
    return ApplyEnded(plan, summary, apply_id, tuple(waits))


async def _carry_out(plan: Plan, session: ApplySession) -> tuple[ApplySummary, str | None]:
    """Returns how the apply ended, and its id.

    The id is None where an earlier apply did every step: then nothing is to do, and no history records it.
    """
    written = sorted({step.cluster for step in plan.steps})
    applied = _applied(plan, written, session)
    await session.recheck.refuse_others(plan, written)  # a saved plan's address may lead elsewhere by now
    async with AsyncExitStack() as held:
        clients = {
            cluster: await held.enter_async_context(ClusterClient(session.endpoints[cluster]))
            for cluster in written
        }
        for client in clients.values():
            await internal_topics.ensure(client, INTERNAL, plan.internal)
        leases: dict[str, Lease] = {}
        for cluster in written:
            lease = lease_of(
                session.endpoints[cluster],
                name=applied.id,
                topology=applied.topology,
                plan=applied.plan,
                ttl_ms=session.lease_ttl_ms,
            )
            await acquired(lease, session.lock_timeout_ms, session.progress)
            leases[cluster] = await held.enter_async_context(lease)
        applied = replace(applied, started_ms=_now_ms())  # waiting for the leases is no part of the apply
        before = await _earlier(plan, session, clients)
        remaining = await _still_true(plan, session, written, before)
        if before is not None and not remaining:
            done = note(f"all {len(plan.steps)} steps of this plan were done by the apply {before.id}")
            session.progress(Noticed(done))
            return NOTHING_DONE, None
        return await _execute(plan, remaining, before, applied, session, clients, leases), applied.id


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


async def _earlier(
    plan: Plan, session: ApplySession, clients: Mapping[str, ClusterClient]
) -> ApplyRecord | None:
    """Returns what earlier applies of this plan did, whether or not they were complete."""
    histories = [
        await read_history(client, lambda notice: session.progress(Noticed(notice)))
        for client in clients.values()
    ]
    same = [one for one in merge(histories) if one.plan == digest(plan)]
    if not same:
        return None
    together = same[0]
    for one in same[1:]:
        done = {
            step_id: outcome for step_id, outcome in one.outcomes.items() if outcome.result is Result.DONE
        }
        together = replace(one, outcomes={**one.outcomes, **together.outcomes, **done})
    return together


async def _still_true(
    plan: Plan, session: ApplySession, written: Sequence[str], before: ApplyRecord | None
) -> tuple[Step, ...]:
    """Returns the steps that are left. What an earlier apply of the plan did does not make it stale while it
    is still so.
    """
    done = _done_before(before)
    sent = _sent_before(before)
    touched = {step.address for step in plan.steps if step.id in sent}
    remaining = tuple(step for step in plan.steps if step.id not in done)
    observed = await session.recheck.again(plan, written)
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
    return frozenset(step_id for step_id, outcome in outcomes.items() if outcome.result is Result.DONE)


def _sent_before(before: ApplyRecord | None) -> frozenset[str]:
    """Returns the steps that may have changed something, whatever is known of their answers."""
    outcomes = before.outcomes if before else {}
    never = (Result.SKIPPED, Result.NOT_STARTED)
    return frozenset(step_id for step_id, outcome in outcomes.items() if outcome.result not in never)


async def _execute(
    plan: Plan,
    remaining: Sequence[Step],
    before: ApplyRecord | None,
    applied: ApplyRecord,
    session: ApplySession,
    clients: Mapping[str, ClusterClient],
    leases: Mapping[str, Lease],
) -> ApplySummary:
    done = _done_before(before)
    logs = {cluster: LogWriter(client) for cluster, client in clients.items()}
    journal = Journal(applied, logs)
    interruption = Interruption()
    report = traceback_reporter(session.errors, applied.id, lambda text: session.progress(ProgressText(text)))

    def stop_reason(cluster: str) -> Callable[[], Awaitable[str | None]]:
        async def reason() -> str | None:
            return interruption.reason() or await leases[cluster].lost(interruption.reason)

        return reason

    contexts = {
        cluster: ApplyContext(
            endpoint=session.endpoints[cluster],
            registry=RegistryWriter(logs[cluster]),
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

    async def notify(event: Event) -> None:
        match event:
            case StepsSent():
                await journal.sent(event.cluster, [step.id for step in event.steps])
                session.progress(event)
            case StepsEnded():
                await journal.ended(event.cluster, {one.step.id: _step_result(one) for one in event.outcomes})
                session.progress(event)

    try:
        with session.interrupts(interruption):
            await _begin(journal, plan)
            await _write_first(journal, session)
            session.progress(ApplyStarted(plan))
            summary = await execute(remaining, contexts, notify, interruption, report)
            left_out = {step.id: StepOutcome(step, DONE.result) for step in plan.steps if step.id in done}
            summary = replace(summary, outcomes={**left_out, **summary.outcomes})
            await _finish(journal, summary, session.progress)
    finally:
        for log in logs.values():
            log.close()
        for context in contexts.values():
            context.close()
    return summary


async def _begin(journal: Journal, plan: Plan) -> None:
    try:
        await journal.begin(plan.steps)
    except ClusterFailure as failure:
        raise Failure(
            error(
                f"the journal of this apply cannot be written, so nothing was changed: {failure.why}",
                f"the topic {naming.HISTORY} needs a leader and enough replicas in sync; then apply again",
            )
        ) from failure


async def _write_first(journal: Journal, session: ApplySession) -> None:
    """Writes the topology's files before the first step. If they can't be written, nothing is applied."""
    if session.write is None:
        return
    try:
        session.write()
    except Failure:
        with suppress(ClusterFailure):
            await journal.finish("failed", _now_ms())
        raise


def _step_result(outcome: StepOutcome) -> StepResult:
    return StepResult(outcome.result, outcome.why, outcome.seconds)


async def _finish(journal: Journal, summary: ApplySummary, progress: ProgressHandler) -> None:
    result = "done" if summary.complete else "interrupted" if summary.interrupted else "failed"
    try:
        await journal.finish(result, _now_ms())
    except ClusterFailure as failure:
        unwritten = f"how the apply ended could not be written to its history: {failure.why}"
        progress(Noticed(warning(unwritten)))
