"""Executes one plan: the leases, the check that it still holds, the journal, and the steps.

Only the holder of the lease changes a cluster: an apply, or a replay of salvaged records.
"""

import getpass
import os
import socket
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from planner.apply.context import (
    ApplyContext,
    ApplyTools,
    RequestGuard,
)
from planner.apply.executor import Interruption, Observer, execute
from planner.kafka import ClusterClient, ClusterEndpoint, ClusterFailure
from planner.kafka.log import LogWriter
from planner.model.diagnostic import Failure, error, note, warning
from planner.model.observed import Observed, ObservedCluster, Unreachable
from planner.model.plan import ApplyResult, Plan, digest
from planner.model.step import (
    DONE,
    ApplyRecord,
    ApplySummary,
    Event,
    Result,
    Step,
    StepResult,
    StepsEnded,
    StepsSent,
)
from planner.model.times import utc
from planner.observe.cluster import ReadOptions
from planner.observe.observer import identities, observe
from planner.plan.guards import recheck, required_keys
from planner.plan.staleness import (
    compared_keys,
    no_longer_done,
    other_clusters,
    outcomes_together,
    read_request,
    stale,
)
from planner.state import internal_topics
from planner.state.history import Journal, merge, read_history
from planner.state.internal_topics import read_registry, write_registry
from planner.state.lease import TTL_MS, Lease, LeaseHolder, LeaseState
from planner.workflows.interaction import (
    ApplyStarted,
    Interrupts,
    ProgressHandler,
    traceback_reporter,
    without_signals,
)
from planner.workflows.requests import ChangeRequest
from planner.workflows.topology import folder_of
from runtime.contract.records.record_values import printable
from runtime.contract.spec import naming


@asynccontextmanager
async def leased(
    endpoint: ClusterEndpoint,
    *,
    name: str,
    topology: str,
    plan: str,
    lock_timeout_ms: int,
    progress: ProgressHandler,
    ttl_ms: int = TTL_MS,
) -> AsyncIterator[Lease]:
    """Holds the lease of a cluster for this process. `name` identifies it, `plan` is what it executes.

    Failure where another holder keeps it beyond the lock timeout.
    """
    holder = LeaseHolder(
        id=f"{name}-{uuid.uuid4().hex[:6]}",
        user=user(),
        host=socket.gethostname(),
        pid=os.getpid(),
        topology=topology,
        plan=plan,
    )

    def waiting(held: LeaseState) -> None:
        progress(wait_text(endpoint.cluster, held))

    async with await Lease(endpoint, holder, ttl_ms).acquire(lock_timeout_ms / 1000, waiting) as lease:
        yield lease


def wait_text(cluster: str, held: LeaseState) -> str:
    since = utc(held.since_ms, "%H:%M:%S UTC")
    holder = printable(f"{held.holder.user}@{held.holder.host}, pid {held.holder.pid}")
    return f"Waiting for another apply to {cluster}: {holder}, since {since} ..."


def user() -> str:
    """Returns the name of the user, or the user id in a container without names."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def git_commit(folder: Path, *, edited: bool) -> str | None:
    """Returns the commit of the topology's folder, marked `-dirty` if it was edited; None outside of Git.

    Git takes a folder with the files `HEAD` and `config` for a repository of its own, and `git status` runs
    commands that this `config` names. Both may be files of a pull request: no such repository is asked.
    """
    try:
        repository = Path(_git(folder, "rev-parse", "--absolute-git-dir"))
        if folder.resolve().is_relative_to(repository.resolve()):
            return None
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


def refuse_silent(clusters: Mapping[str, str | ObservedCluster | Unreachable]) -> None:
    """Failure where a cluster that the plan changes could not be read."""
    problems = []
    for cluster in clusters.values():
        if isinstance(cluster, Unreachable):
            what, hint = (
                ("does not answer", f"bring {cluster.name} back")
                if cluster.silent
                else ("could not be read", "correct that")
            )
            summary = f"{cluster.name} {what}, and the plan changes it: {cluster.why}"
            problems.append(error(summary, cluster.hint or f"{hint}, then run this again"))
    if problems:
        raise Failure(problems)


INTERNAL = (naming.REGISTRY, naming.LEASE, naming.HISTORY)


@dataclass(kw_only=True)
class ApplySession:
    """One execution of a plan: exactly its steps, under the leases of the clusters that they change.

    The timeout of the request says how long a cluster may keep silent while it is read; the journal and steps
    have limits of their own. `errors` is the folder of tracebacks. `write` writes what the plan was made
    from, before the first step. `is_new`: this command made the plan, so no earlier apply did a part of it.
    """

    plan: Plan
    request: ChangeRequest
    endpoints: Mapping[str, ClusterEndpoint]
    tools: ApplyTools
    progress: ProgressHandler
    interrupts: Interrupts = without_signals
    lease_ttl_ms: int = TTL_MS
    errors: Path | None = None
    write: Callable[[], None] | None = None
    is_new: bool = False

    def __post_init__(self) -> None:
        self._written = sorted({step.cluster for step in self.plan.steps})
        self._earlier: Mapping[str, StepResult] = {}  # the outcomes of earlier applies of this plan
        self._applied = self._record()

    async def carry_out(self) -> ApplyResult:
        """Executes the steps. The id is None where an earlier apply did them all, and nothing is recorded.

        Failure: the plan does not hold any more, a lease is held by another apply, or the journal can't be
        written.
        """
        await self._refuse_others()  # a saved plan's address may lead elsewhere by now
        async with AsyncExitStack() as held:
            clients = {
                cluster: await held.enter_async_context(ClusterClient(self.endpoints[cluster]))
                for cluster in self._written
            }
            for client in clients.values():
                await internal_topics.ensure(client, INTERNAL, self.plan.topology.internal)
            leases = {
                cluster: await held.enter_async_context(
                    leased(
                        self.endpoints[cluster],
                        name=self._applied.id,
                        topology=self._applied.topology,
                        plan=self._applied.plan,
                        lock_timeout_ms=self.request.lock_timeout_ms,
                        progress=self.progress,
                        ttl_ms=self.lease_ttl_ms,
                    )
                )
                for cluster in self._written
            }
            # waiting for the leases is no part of the apply
            self._applied = replace(self._applied, started_ms=_now_ms())
            before = await self._read_earlier(clients) if not self.is_new else None
            remaining = await self._still_true()
            if before is not None and not remaining:
                done = note(f"all {len(self.plan.steps)} steps of this plan were done by the apply {before}")
                self.progress(done)
                return ApplyResult(self.plan)
            summary = await self._execute(remaining, clients, leases)
            return ApplyResult(self.plan, summary, self._applied.id)

    def _record(self) -> ApplyRecord:
        now_ms = _now_ms()
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now_ms / 1000))
        return ApplyRecord(
            id=f"{stamp}-{uuid.uuid4().hex[:6]}",
            topology=self.plan.topology.name,
            mode=self.plan.inputs.mode.value,
            plan=digest(self.plan),
            user=user(),
            host=socket.gethostname(),
            pid=os.getpid(),
            git=git_commit(folder_of(self.request.path.resolve()), edited=self.write is not None),
            clusters={cluster: self.plan.clusters[cluster] for cluster in self._written},
            total=len(self.plan.steps),
            started_ms=now_ms,
        )

    async def _refuse_others(self) -> None:
        """Failure where a cluster that the plan was made from is another one now.

        Also where one that it changes does not answer. Others need not answer, and are not read after this.
        """
        options = ReadOptions(self.request.timeout_s)
        identified = await identities(self.plan.connections, self.endpoints, options)
        refuse_silent({name: identified[name] for name in self._written})
        ids = {name: identity for name, identity in identified.items() if isinstance(identity, str)}
        if others := other_clusters(self.plan, ids):
            raise Failure(others)

    async def _read_earlier(self, clients: Mapping[str, ClusterClient]) -> str | None:
        """Reads what earlier applies of this plan did, whether or not they were complete.

        Returns the id of the last one; None where there is none.
        """
        histories = [await read_history(client, self.progress) for client in clients.values()]
        same = [applied for applied in merge(histories) if applied.plan == self._applied.plan]
        self._earlier = outcomes_together(same)
        return same[-1].id if same else None

    async def _still_true(self) -> tuple[Step, ...]:
        """Returns the steps that are left. What an earlier apply of the plan did does not make it stale while
        it is still so.
        """
        plan, done = self.plan, self._done_before()
        never = (Result.SKIPPED, Result.NOT_STARTED)
        sent = {step for step, outcome in self._earlier.items() if outcome.result not in never}
        touched = {step.address for step in plan.steps if step.id in sent}
        remaining = tuple(step for step in plan.steps if step.id not in done)
        observed = await self._observed()
        problems = recheck(plan, remaining, observed) or (
            *stale(plan, observed, touched),
            *no_longer_done(plan.steps, done, observed),
        )
        if problems:
            raise Failure(problems)
        if done and len(done) < len(plan.steps):
            earlier = f"{len(done)} of {len(plan.steps)} steps of this plan were done by an earlier apply"
            self.progress(note(earlier))
        return remaining

    async def _observed(self) -> Observed:
        """Reads what the steps were made from and policies name, at the clusters that the plan changes.

        Failure where one of them is silent.
        """
        plan = self.plan
        keys = compared_keys(plan.steps, plan.changes)
        written = {name: plan.connections[name] for name in self._written}
        wanted = read_request(written, keys, required_keys(plan.topology.policies))
        options = ReadOptions(
            self.request.timeout_s,
            read_registry=read_registry,
            jobs_of=plan.topology.name,
            registries=self.tools.registries,
        )
        observed = await observe(written, self.endpoints, lambda _: wanted, options)
        refuse_silent(observed.clusters)
        return observed

    def _done_before(self) -> frozenset[str]:
        return frozenset(step for step, outcome in self._earlier.items() if outcome.result is Result.DONE)

    async def _execute(
        self, remaining: Sequence[Step], clients: Mapping[str, ClusterClient], leases: Mapping[str, Lease]
    ) -> ApplySummary:
        logs = {cluster: LogWriter(client) for cluster, client in clients.items()}
        journal = Journal(self._applied, logs)
        interruption = Interruption()

        def stop_reason(cluster: str) -> Callable[[], Awaitable[str | None]]:
            async def reason() -> str | None:
                return interruption.reason() or await leases[cluster].lost(interruption.reason)

            return reason

        contexts = {
            cluster: ApplyContext(
                endpoint=self.endpoints[cluster],
                write_registry=partial(write_registry, logs[cluster]),
                guard=RequestGuard(stop_reason(cluster)),
                plan_digest=self._applied.plan,
                now_ms=_now_ms,
                cluster_id=self.plan.clusters.get(cluster, ""),
                tools=self.tools,
            )
            for cluster in leases
        }

        report = traceback_reporter(self.errors, self._applied.id, self.progress)
        try:
            with self.interrupts(interruption):
                await self._begin(journal)
                self.progress(ApplyStarted(self.plan))
                summary = await execute(
                    remaining, contexts, recorded(journal, self.progress), interruption, report
                )
                done = self._done_before()
                left_out = {step.id: DONE for step in self.plan.steps if step.id in done}
                summary = replace(summary, outcomes={**left_out, **summary.outcomes})
                await self._finish(journal, summary)
        finally:
            for log in logs.values():
                log.close()
            for context in contexts.values():
                context.close()
        return summary

    async def _begin(self, journal: Journal) -> None:
        """Begins the journal, and writes the topology's files. Failure: then nothing is applied."""
        try:
            await journal.begin(self.plan.steps, self.plan.inputs.observed)
        except ClusterFailure as failure:
            raise Failure(
                error(
                    f"the journal of this apply cannot be written, so nothing was changed: {failure.why}",
                    f"the topic {naming.HISTORY} needs a leader and enough replicas in sync; then apply"
                    " again",
                )
            ) from failure
        try:
            if self.write is not None:
                self.write()
        except Failure:
            with suppress(ClusterFailure):
                await journal.finish("failed", _now_ms())
            raise

    async def _finish(self, journal: Journal, summary: ApplySummary) -> None:
        result = "done" if summary.complete else "interrupted" if summary.interrupted else "failed"
        try:
            await journal.finish(result, _now_ms())
        except ClusterFailure as failure:
            unwritten = f"how the apply ended could not be written to its history: {failure.why}"
            hint = "repl history shows this apply as not finished; its steps are done as listed here"
            self.progress(warning(unwritten, hint))


def recorded(journal: Journal, progress: ProgressHandler) -> Observer:
    """Returns what writes the events of steps into the journal, and reports them.

    The end of steps is reported also where the journal can't be written, which raises ClusterFailure.
    """

    async def notify(event: Event) -> None:
        match event:
            case StepsSent(cluster, steps):
                await journal.sent(cluster, [step.id for step in steps])
                progress(event)
            case StepsEnded(cluster, results):
                try:
                    await journal.ended(cluster, {step.id: result for step, result in results})
                finally:
                    progress(event)

    return notify


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
