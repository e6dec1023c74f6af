"""Launches, reconfigures and stops jobs. Each handler waits until the job has really done it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import msgspec

from planner.apply.context import ApplyContext
from planner.apply.copying import JobStart
from planner.apply.denials import (
    GiveUp,
    LogLines,
    denial_in_log,
    denied,
    first_of,
    lasting,
    lines_since,
    right_to_grant,
)
from planner.apply.job_watch import (
    JobWatch,
    new_id,
    not_acknowledged,
    refusal_of,
    send_command,
)
from planner.kafka.failures import ClusterFailure
from planner.model.diagnostic import Failure
from planner.model.step import DONE, Result, StepResult, failed
from planner.plan.steps.jobs import LaunchJob, ReconfigureJob, StopJob
from runtime.contract.launching import Launcher, LaunchError, LaunchState, LaunchStatus
from runtime.contract.records import control, job_status
from runtime.contract.records.control import Reconfigure
from runtime.contract.records.job_status import JobStatus, StatusKey
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.naming import STATUS

LEFT_RUNNING = (
    "correct that: the job stays and tries again by itself."
    " Then run this again, which records the job as it is"
)
QUEUED = (
    "free resources there, or change the job's slots, memory or queue: the job stays, and starts as soon as"
    " it gets them. Then run this again, which records the job as it is"
)
NOT_STARTED = (
    "correct that: the job stays, and starts as soon as it can. Then run this again, which records the job"
    " as it is"
)
_CHECK_PROCESS_S = 2.0


@dataclass(frozen=True, slots=True)
class LaunchedJob:
    """A job that was launched, until it copies. `logged` reads its log since then."""

    step: LaunchJob
    start: JobStart
    launcher: Launcher
    where: str
    logged: LogLines

    async def wait_until_copying(self, context: ApplyContext, watch: JobWatch) -> StepResult:
        """Waits until the job copies, and returns how its step has ended."""
        start, in_log = self.start, denial_in_log(self.logged)

        async def refused() -> str:
            return denied(start.spec, start.table) if start.status is not None else await in_log()

        why = await watch.wait_until(
            lambda: start.not_copying(self.step.topics),
            context.timeouts.copying_s,
            first_of(self._until_process_ends(context), _while_refused(context, start, refused)),
            start.progress,
            lambda what: context.tools.on_wait(self.step, what),
        )
        if not why:
            return DONE
        if start.failing_flow() or start.lacking_resources():
            return failed(f"it runs ({self.where}), but {why}")  # its log would only repeat this
        lines = [line for line in await self.logged() if line.strip()]
        log = "; the last lines of its log:\n" + "\n".join(f"    {line}" for line in lines) if lines else ""
        return failed(f"it was launched ({self.where}), but {why}{log}")

    def _until_process_ends(self, context: ApplyContext) -> GiveUp:
        """Returns a check that ends the wait when the process has ended for good, or does not start."""
        checked_at, seen = time.monotonic(), LaunchStatus(LaunchState.UNKNOWN)

        async def not_started() -> str:
            return seen.why if seen.runs and self.start.status is None else ""

        not_starting = lasting(context.timeouts.queued_s, not_started, lambda _: NOT_STARTED)

        async def give_up() -> str | None:
            nonlocal checked_at, seen
            if (stop_reason := await context.guard.stop_reason()) is not None:
                return f"it was not waited for: {stop_reason}"
            if time.monotonic() - checked_at > _CHECK_PROCESS_S:
                checked_at = time.monotonic()
                with suppress(LaunchError):
                    seen = await asyncio.to_thread(self.launcher.find, self.step.job)
            if seen.runs is False:
                return f"it ended: {seen.why}" if seen.why else "it ended"
            return await not_starting()

        return give_up


async def launch(context: ApplyContext, steps: Sequence[LaunchJob]) -> dict[str, StepResult]:
    """Starts all jobs, then waits for each until it copies."""
    results: dict[str, StepResult] = {}
    launched: list[LaunchedJob] = []
    async with JobWatch(context.client) as watch:
        for step in steps:
            if (stop_reason := await context.guard.before_request()) is not None:
                results[step.id] = StepResult(Result.NOT_STARTED, stop_reason)
                continue
            spec = step.spec
            before = watch.job(step.job)
            start = JobStart(spec, watch.table, before.driver if before is not None else "")
            try:
                launcher = context.launcher(spec.launch)
                where, logged = await _launch(context, launcher, spec)
            except LaunchError as failure:
                log = "".join(f"\n    {line}" for line in failure.log)
                results[step.id] = failed(f"{failure.explained}{log}")
                continue
            launched.append(LaunchedJob(step, start, launcher, where, logged))
        for job in launched:
            results[job.step.id] = (
                await _seen(job.wait_until_copying(context, watch)) if context.tools.wait else DONE
            )
    return results


async def _launch(context: ApplyContext, launcher: Launcher, spec: JobSpec) -> tuple[str, LogLines]:
    """Stops what an interrupted apply left of the job, and starts it.

    Returns where it runs, and a function that reads what it has logged since.
    """
    if (await asyncio.to_thread(launcher.find, spec.job)).runs:
        await asyncio.to_thread(launcher.stop, spec.job, context.timeouts.kill_after_s)
    logged = await lines_since(launcher, spec.job)
    return str(await asyncio.to_thread(launcher.launch, spec)), logged


def _while_refused(context: ApplyContext, start: JobStart, refused: Callable[[], Awaitable[str]]) -> GiveUp:
    """Returns a check that ends the wait when a right stays missing, a flow keeps failing to start, or
    Spark's cluster gives the job no resources.
    """

    async def failing() -> str:
        return start.failing_flow()

    async def queued() -> str:
        return start.lacking_resources()

    return first_of(
        lasting(context.timeouts.denied_s, refused, partial(right_to_grant, start.spec)),
        lasting(context.timeouts.failing_s, failing, lambda _: LEFT_RUNNING),
        lasting(context.timeouts.queued_s, queued, lambda _: QUEUED),
    )


async def reconfigure(context: ApplyContext, steps: Sequence[ReconfigureJob]) -> dict[str, StepResult]:
    """Sends the new spec to the running job, which needs no launcher, and stores it for the next start.

    All jobs get their spec before the first is waited for: the flows of one may wait for those of another.
    """
    results: dict[str, StepResult] = {}
    sent: list[tuple[ReconfigureJob, Reconfigure]] = []
    async with JobWatch(context.client) as watch:
        for step in steps:
            command = Reconfigure(id=new_id(), spec=step.spec)
            refusal = await _send_spec(context, step, command)
            if refusal is None:
                sent.append((step, command))
            else:
                results[step.id] = refusal
        for step, command in sent:
            results[step.id] = await _seen(_wait_until_applied(context, watch, step, command))
    return results


async def _seen(waiting: Awaitable[StepResult]) -> StepResult:
    """Returns the result of a wait. A status that can't be read fails this step, and none beside it."""
    try:
        return await waiting
    except Failure as failure:
        return failed(f"what the job reports can't be read any more: {failure}")


async def _send_spec(context: ApplyContext, step: ReconfigureJob, command: Reconfigure) -> StepResult | None:
    """Sends one job its new spec; returns a result if that failed."""
    if (stop_reason := await context.guard.before_request()) is not None:
        return StepResult(Result.NOT_STARTED, stop_reason)
    try:
        await send_command(context.log, step.job, command)
    except ClusterFailure as failure:
        return failed(f"the command could not be sent: {failure.explained}")
    return None


async def _wait_until_applied(
    context: ApplyContext, watch: JobWatch, step: ReconfigureJob, command: Reconfigure
) -> StepResult:
    start = JobStart(command.spec, watch.table)

    def awaited() -> str:
        if missing := not_acknowledged(watch.job(step.job), command):
            return missing
        return start.not_copying(step.topics) if context.tools.wait else ""

    async def refused() -> str:
        return denied(command.spec, watch.table)

    why = await watch.wait_until(
        awaited,
        context.timeouts.acknowledged_s,
        first_of(
            refusal_of(watch, step.job, command),
            _until_heartbeats_stop(context, watch, step.job, context.timeouts.silent_s),
            *((_while_refused(context, start, refused),) if context.tools.wait else ()),
        ),
        start.progress,
        lambda what: context.tools.on_wait(step, what),
    )
    # Only a spec that the job took over: a new start by another one would do what no plan shows.
    taken_over = not not_acknowledged(watch.job(step.job), command)
    note = await _store_spec(context, command.spec) if taken_over else ""
    if why:
        return failed("; ".join(filter(None, (f"the command was sent, but {why}", note))))
    return StepResult(Result.DONE, note)


async def _store_spec(context: ApplyContext, spec: JobSpec) -> str:
    """Stores the spec that the job runs for its next start; returns what follows where that fails."""
    try:
        await asyncio.to_thread(context.launcher(spec.launch).update, spec)
    except LaunchError as failure:
        return (
            f"the job runs as planned, but its spec could not be stored: {failure.explained}. A start in a"
            " new pod or on another machine would use the spec before, until the next change that is applied"
            " where this works"
        )
    return ""


def _until_heartbeats_stop(context: ApplyContext, watch: JobWatch, job: str, silent_s: float) -> GiveUp:
    """Returns a check that ends the wait when the job has died. The next plan starts it again."""
    last_heartbeat_at, last_status = time.monotonic(), watch.job(job)

    async def give_up() -> str | None:
        nonlocal last_heartbeat_at, last_status
        if watch.job(job) != last_status:
            last_heartbeat_at, last_status = time.monotonic(), watch.job(job)
        if time.monotonic() - last_heartbeat_at > silent_s:
            return "it sends no heartbeat any more: run this again to start another job"
        return await context.guard.stop_reason()

    return give_up


async def stop(context: ApplyContext, steps: Sequence[StopJob]) -> dict[str, StepResult]:
    """Stops jobs through the control topic, then by their launcher, which kills them after a time limit."""
    async with JobWatch(context.client) as watch:
        return {step.id: await _seen(_stop_job(context, watch, step)) for step in steps}


async def _stop_job(context: ApplyContext, watch: JobWatch, step: StopJob) -> StepResult:
    if (stop_reason := await context.guard.before_request()) is not None:
        return StepResult(Result.NOT_STARTED, stop_reason)
    if _is_running(watch, step.job):  # A job that has died does not read the command.
        await send_command(context.log, step.job, control.StopJobCommand(id=new_id()))
        await watch.wait_until(
            lambda: "it still runs" if _is_running(watch, step.job) else "",
            context.timeouts.stopped_s,
            _until_heartbeats_stop(context, watch, step.job, context.timeouts.heartbeat_s),
        )
    if step.launch is None:
        return failed("something may start it again: only a newer release can read how it was started")
    try:
        launcher = context.launcher(step.launch)
        left = await asyncio.to_thread(launcher.stop, step.job, context.timeouts.kill_after_s)
    except LaunchError as failure:
        return failed(f"something may start it again: {failure.explained}")
    status = watch.job(step.job)
    if not _is_running(watch, step.job):
        if status is not None and not status.stop_requested:
            await _publish_stopped(context, status)
        return StepResult(Result.DONE, left)
    assert status is not None
    if await watch.has_heartbeat(step.job, context.timeouts.heartbeat_s):
        why = left or "it was not started on this machine"
        return failed(f"it does not stop, and runs as {status.where}: {why}; end it there, then apply again")
    await _publish_stopped(context, status)
    return StepResult(Result.DONE, left)


def _is_running(watch: JobWatch, job: str) -> bool:
    status = watch.job(job)
    return status is not None and status.state != "stopped"


async def _publish_stopped(context: ApplyContext, status: JobStatus) -> None:
    """Writes that repl stopped a job that ended without it: no reader waits for it, no standby starts it."""
    trouble = status.trouble if status.state == "stopped" else "stopped by repl, after its end"
    stopped = msgspec.structs.replace(status, state="stopped", trouble=trouble, stop_requested=True)
    record = (job_status.encode_key(StatusKey("job", status.job)), job_status.encode(stopped))
    await context.log.append(STATUS, [record])
