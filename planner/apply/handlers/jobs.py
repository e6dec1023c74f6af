"""Launches, reconfigures and stops jobs. Each handler waits until the job has really done it."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
from confluent_kafka import KafkaException

from planner.apply.context import ApplyContext, JobLauncher, LaunchFailed
from planner.apply.job_control import (
    DENIED,
    JobWatch,
    denied,
    new_id,
    not_acknowledged,
    not_copying,
    send_command,
)
from planner.kafka import explain, producer
from planner.kafka.log import append
from planner.model.outcome import DONE, RequestResult, Result, failed
from planner.model.step import LaunchJob, ReconfigureJob, StopJob
from runtime.contract.records import control, job_status
from runtime.contract.records.control import Reconfigure
from runtime.contract.records.job_status import JobKey, JobStatus
from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import JobSpec, LaunchSpec
from runtime.contract.spec.naming import STATUS

_WRITE_S = 30.0
_CHECK_PROCESS_S = 2.0

GiveUp = Callable[[], str | None]


def launch(context: ApplyContext, steps: Sequence[LaunchJob]) -> dict[str, RequestResult]:
    """Starts all jobs, then waits for each until it copies."""
    results: dict[str, RequestResult] = {}
    started: list[tuple[LaunchJob, JobSpec, JobLauncher, str, str]] = []
    with JobWatch(context.endpoint) as watch:
        for step in steps:
            if (stop_reason := context.guard.before_request()) is not None:
                results[step.id] = RequestResult(Result.NOT_STARTED, stop_reason)
                continue
            spec = jobspec.decode(step.spec)
            before = watch.job(step.job)
            try:
                launcher = context.launchers(spec.launch)
                where = _start(context, launcher, spec)
            except LaunchFailed as failure:
                results[step.id] = _launch_failure(failure)
                continue
            started.append((step, spec, launcher, where, before.driver if before is not None else ""))
        for step, spec, launcher, where, driver_before in started:
            results[step.id] = (
                _wait_until_copying(context, watch, spec, step, launcher, where, driver_before)
                if context.wait
                else DONE
            )
    return results


def _start(context: ApplyContext, launcher: JobLauncher, spec: JobSpec) -> str:
    """Stops what an interrupted apply left of the job, and starts it."""
    if launcher.runs(spec.job):
        launcher.stop(spec.job, context.timeouts.kill_after_s)
    return launcher.launch(spec)


def _wait_until_copying(
    context: ApplyContext,
    watch: JobWatch,
    spec: JobSpec,
    step: LaunchJob,
    launcher: JobLauncher,
    where: str,
    driver_before: str,
) -> RequestResult:
    def awaited() -> str:
        return not_copying(spec, step.topics, watch.table, driver_before)

    in_log = _denial_in_log(launcher, spec.job)

    def refused() -> str:
        status = watch.job(spec.job)
        reported = status is not None and status.driver != driver_before
        return denied(spec, watch.table) if reported else in_log()

    why = watch.wait_until(
        awaited,
        context.timeouts.copying_s,
        _first_of(
            _until_process_ends(context, launcher, spec.job),
            _while_denied(context, refused),
        ),
    )
    if not why:
        return DONE
    return failed(f"it was launched ({where}), but {why}{_log_excerpt(launcher, spec.job)}")


def _until_process_ends(context: ApplyContext, launcher: JobLauncher, job: str) -> Callable[[], str | None]:
    """Returns a check that ends the wait when the job's process has ended for good."""
    checked_at = time.monotonic()

    def give_up() -> str | None:
        nonlocal checked_at
        if (stop_reason := context.guard.stop_reason()) is not None:
            return f"it was not waited for: {stop_reason}"
        if time.monotonic() - checked_at > _CHECK_PROCESS_S:
            checked_at = time.monotonic()
            with suppress(LaunchFailed):
                if launcher.runs(job) is False:
                    return "it ended"
        return None

    return give_up


def _first_of(*checks: GiveUp) -> GiveUp:
    """Returns a check that ends the wait with the first reason of several checks."""
    return lambda: next((why for check in checks if (why := check()) is not None), None)


def _while_denied(context: ApplyContext, missing: Callable[[], str]) -> GiveUp:
    """Returns a check that ends the wait when a right stays missing, with what the broker refused."""
    since: float | None = None

    def give_up() -> str | None:
        nonlocal since
        why = missing()
        if not why:
            since = None
            return None
        since = since if since is not None else time.monotonic()
        if time.monotonic() - since < context.timeouts.denied_s:
            return None
        return f"{why} — grant the right; repl doctor CLUSTER names those that are missing"

    return give_up


def _denial_in_log(launcher: JobLauncher, job: str) -> Callable[[], str]:
    """Returns a function that finds the line in which a job that cannot report says which right it lacks."""
    checked_at, found = time.monotonic(), ""

    def look() -> str:
        nonlocal checked_at, found
        if time.monotonic() - checked_at > _CHECK_PROCESS_S:
            checked_at, found = time.monotonic(), ""
            with suppress(LaunchFailed):
                lines = reversed(launcher.tail(job))
                found = next((line.strip() for line in lines if DENIED in line), "")
        return found

    return look


def _log_excerpt(launcher: JobLauncher, job: str) -> str:
    with suppress(LaunchFailed):
        lines = [line for line in launcher.tail(job) if line.strip()]
        if lines:
            return "; the last lines of its log:\n" + "\n".join(f"    {line}" for line in lines)
    return ""


def _launch_failure(failure: LaunchFailed) -> RequestResult:
    text = failure.what + (f" — {failure.way_out}" if failure.way_out else "")
    return failed(text + "".join(f"\n    {line}" for line in failure.log))


def reconfigure(context: ApplyContext, steps: Sequence[ReconfigureJob]) -> dict[str, RequestResult]:
    """Stores the new spec for the next start, then sends it to the running job.

    All jobs get their spec before the first is waited for: the flows of one may wait for those of another.
    """
    results: dict[str, RequestResult] = {}
    sent: list[tuple[ReconfigureJob, Reconfigure]] = []
    with JobWatch(context.endpoint) as watch:
        for step in steps:
            command = Reconfigure(id=new_id(), spec=jobspec.decode(step.spec))
            refusal = _send_spec(context, step, command)
            if refusal is None:
                sent.append((step, command))
            else:
                results[step.id] = refusal
        for step, command in sent:
            results[step.id] = _wait_until_applied(context, watch, step, command)
    return results


def _send_spec(context: ApplyContext, step: ReconfigureJob, command: Reconfigure) -> RequestResult | None:
    """Sends one job its new spec; returns a result if that failed."""
    if (stop_reason := context.guard.before_request()) is not None:
        return RequestResult(Result.NOT_STARTED, stop_reason)
    try:
        context.launchers(command.spec.launch).update(command.spec)
        send_command(context.endpoint, step.job, command)
    except LaunchFailed as failure:
        return _launch_failure(failure)
    except (KafkaException, TimeoutError) as failure:
        return failed(f"the command could not be sent: {explain(failure)}")
    return None


def _wait_until_applied(
    context: ApplyContext, watch: JobWatch, step: ReconfigureJob, command: Reconfigure
) -> RequestResult:
    def awaited() -> str:
        if missing := not_acknowledged(watch.job(step.job), command):
            return missing
        return not_copying(command.spec, step.topics, watch.table, "") if context.wait else ""

    why = watch.wait_until(
        awaited,
        context.timeouts.acknowledged_s,
        _first_of(
            _until_heartbeats_stop(context, watch, step.job),
            _while_denied(context, lambda: denied(command.spec, watch.table) if context.wait else ""),
        ),
    )
    return failed(f"the command was sent, but {why}") if why else DONE


def _until_heartbeats_stop(context: ApplyContext, watch: JobWatch, job: str) -> Callable[[], str | None]:
    """Returns a check that ends the wait when the job has died. The next plan starts it again."""
    last_heartbeat_at, last_status = time.monotonic(), watch.job(job)

    def give_up() -> str | None:
        nonlocal last_heartbeat_at, last_status
        if watch.job(job) != last_status:
            last_heartbeat_at, last_status = time.monotonic(), watch.job(job)
        if time.monotonic() - last_heartbeat_at > context.timeouts.silent_s:
            return "it sends no heartbeat any more: run this again to start another job"
        return context.guard.stop_reason()

    return give_up


def stop(context: ApplyContext, steps: Sequence[StopJob]) -> dict[str, RequestResult]:
    """Stops jobs through the control topic, then by their launcher, which kills them after a time limit."""
    with JobWatch(context.endpoint) as watch:
        return {step.id: _stop_one(context, watch, step) for step in steps}


def _stop_one(context: ApplyContext, watch: JobWatch, step: StopJob) -> RequestResult:
    if (stop_reason := context.guard.before_request()) is not None:
        return RequestResult(Result.NOT_STARTED, stop_reason)
    if _is_running(watch, step.job) and watch.has_heartbeat(step.job, context.timeouts.heartbeat_s):
        send_command(context.endpoint, step.job, control.StopJobCommand(id=new_id()))
        watch.wait_until(
            lambda: "it still runs" if _is_running(watch, step.job) else "",
            context.timeouts.stopped_s,
            context.guard.stop_reason,
        )
    problem = ""
    try:
        launcher = context.launchers(_launch_of(step))
        launcher.stop(step.job, context.timeouts.kill_after_s)
    except LaunchFailed as failure:
        problem = str(failure)
    status = watch.job(step.job)
    if not _is_running(watch, step.job):
        if status is not None and not status.stop_requested:
            _publish_stopped(context, status)
        return DONE
    assert status is not None
    if watch.has_heartbeat(step.job, context.timeouts.heartbeat_s):
        where = f"pid {status.process} on {status.host}"
        return failed(
            f"it does not stop, and runs as {where}: {problem or 'it was not started on this machine'}"
        )
    _publish_stopped(context, status)
    return DONE


def _is_running(watch: JobWatch, job: str) -> bool:
    status = watch.job(job)
    return status is not None and status.state != "stopped"


def _launch_of(step: StopJob) -> LaunchSpec:
    return msgspec.json.decode(step.launch, type=LaunchSpec) if step.launch else LaunchSpec()


def _publish_stopped(context: ApplyContext, status: JobStatus) -> None:
    """Writes that repl stopped a job that ended without it: no reader waits for it, no standby starts it."""
    trouble = status.trouble if status.state == "stopped" else "stopped by repl, after its end"
    stopped = msgspec.structs.replace(status, state="stopped", trouble=trouble, stop_requested=True)
    record = (job_status.encode_key(JobKey(status.job)), job_status.encode(stopped))
    append(producer(context.endpoint), STATUS, [record], _WRITE_S)
