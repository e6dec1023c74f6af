"""Jobs: launched, told, stopped. Each is watched until it really does what was asked of it."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
from confluent_kafka import KafkaException

from planner.apply.commands import new_id, not_heard, tell
from planner.apply.context import ApplyContext
from planner.apply.job_watch import JobWatch, not_copying
from planner.apply.launching import JobLauncher, LaunchFailed
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
_LOOK_AT_PROCESS_S = 2.0


def launch(hands: ApplyContext, steps: Sequence[LaunchJob]) -> dict[str, RequestResult]:
    """All are started, then all are waited for."""
    verdicts: dict[str, RequestResult] = {}
    started: list[tuple[LaunchJob, JobSpec, JobLauncher, str, str]] = []
    with JobWatch(hands.endpoint) as watch:
        for step in steps:
            if (barred := hands.guard.before_request()) is not None:
                verdicts[step.id] = RequestResult(Result.NOT_STARTED, barred)
                continue
            spec = jobspec.decode(step.spec)
            before = watch.job(step.job)
            try:
                launcher = hands.launchers(spec.launch)
                where = _started(hands, launcher, spec)
            except LaunchFailed as failure:
                verdicts[step.id] = _told(failure)
                continue
            started.append((step, spec, launcher, where, before.driver if before is not None else ""))
        for step, spec, launcher, where, driver_before in started:
            verdicts[step.id] = (
                _copies(hands, watch, spec, step, launcher, where, driver_before) if hands.wait else DONE
            )
    return verdicts


def _started(hands: ApplyContext, launcher: JobLauncher, spec: JobSpec) -> str:
    """What an apply that was cut short has left of it, and what says nothing any more, goes first."""
    if launcher.runs(spec.job):
        launcher.stop(spec.job, hands.patience.grace)
    return launcher.launch(spec)


def _copies(
    hands: ApplyContext,
    watch: JobWatch,
    spec: JobSpec,
    step: LaunchJob,
    launcher: JobLauncher,
    where: str,
    driver_before: str,
) -> RequestResult:
    def awaited() -> str:
        return not_copying(spec, step.topics, watch.board, driver_before)

    why = watch.until(awaited, hands.patience.copies, _given_up(hands, launcher, spec.job))
    if not why:
        return DONE
    return failed(f"it was launched ({where}), but {why}{_last_lines(launcher, spec.job)}")


def _given_up(hands: ApplyContext, launcher: JobLauncher, job: str) -> Callable[[], str | None]:
    """It need not be waited for when its process has ended for good."""
    looked_at = time.monotonic()

    def give_up() -> str | None:
        nonlocal looked_at
        if (barred := hands.guard.barred()) is not None:
            return f"it was not waited for: {barred}"
        if time.monotonic() - looked_at > _LOOK_AT_PROCESS_S:
            looked_at = time.monotonic()
            with suppress(LaunchFailed):
                if launcher.runs(job) is False:
                    return "it ended"
        return None

    return give_up


def _last_lines(launcher: JobLauncher, job: str) -> str:
    with suppress(LaunchFailed):
        lines = [line for line in launcher.tail(job) if line.strip()]
        if lines:
            return "; the last lines of its log:\n" + "\n".join(f"    {line}" for line in lines)
    return ""


def _told(failure: LaunchFailed) -> RequestResult:
    text = failure.what + (f" — {failure.way_out}" if failure.way_out else "")
    return failed(text + "".join(f"\n    {line}" for line in failure.log))


def reconfigure(hands: ApplyContext, steps: Sequence[ReconfigureJob]) -> dict[str, RequestResult]:
    """The file first, for it is the truth at a restart; then the job that runs.

    All jobs are told before the first is waited for: the flows of one may wait for those of another.
    """
    verdicts: dict[str, RequestResult] = {}
    told: list[tuple[ReconfigureJob, Reconfigure]] = []
    with JobWatch(hands.endpoint) as watch:
        for step in steps:
            command = Reconfigure(id=new_id(), spec=jobspec.decode(step.spec))
            refusal = _refused(hands, step, command)
            if refusal is None:
                told.append((step, command))
            else:
                verdicts[step.id] = refusal
        for step, command in told:
            verdicts[step.id] = _taken_over(hands, watch, step, command)
    return verdicts


def _refused(hands: ApplyContext, step: ReconfigureJob, command: Reconfigure) -> RequestResult | None:
    """Tells one job its new spec; a verdict where that could not be done."""
    if (barred := hands.guard.before_request()) is not None:
        return RequestResult(Result.NOT_STARTED, barred)
    try:
        hands.launchers(command.spec.launch).update(command.spec)
        tell(hands.endpoint, step.job, command)
    except LaunchFailed as failure:
        return _told(failure)
    except (KafkaException, TimeoutError) as failure:
        return failed(f"it could not be told: {explain(failure)}")
    return None


def _taken_over(
    hands: ApplyContext, watch: JobWatch, step: ReconfigureJob, command: Reconfigure
) -> RequestResult:
    def awaited() -> str:
        if missing := not_heard(watch.job(step.job), command):
            return missing
        return not_copying(command.spec, step.topics, watch.board, "") if hands.wait else ""

    why = watch.until(awaited, hands.patience.heard, _silent(hands, watch, step.job))
    return failed(f"it was told, but {why}") if why else DONE


def _silent(hands: ApplyContext, watch: JobWatch, job: str) -> Callable[[], str | None]:
    """One that died since the plan was made need not be waited for: the next plan starts another."""
    heard, beat = time.monotonic(), watch.job(job)

    def give_up() -> str | None:
        nonlocal heard, beat
        if watch.job(job) != beat:
            heard, beat = time.monotonic(), watch.job(job)
        if time.monotonic() - heard > hands.patience.silence:
            return "it gives no sign of life any more: run this again, which starts another"
        return hands.guard.barred()

    return give_up


def stop(hands: ApplyContext, steps: Sequence[StopJob]) -> dict[str, RequestResult]:
    """Through the control topic, then by who launched it, who kills in the end: a time limit for each."""
    with JobWatch(hands.endpoint) as watch:
        return {step.id: _stopped(hands, watch, step) for step in steps}


def _stopped(hands: ApplyContext, watch: JobWatch, step: StopJob) -> RequestResult:
    if (barred := hands.guard.before_request()) is not None:
        return RequestResult(Result.NOT_STARTED, barred)
    if _runs(watch, step.job) and watch.beats(step.job, hands.patience.sign_of_life):
        tell(hands.endpoint, step.job, control.StopJob(id=new_id()))
        watch.until(
            lambda: "goodbye" if _runs(watch, step.job) else "", hands.patience.goodbye, hands.guard.barred
        )
    problem = ""
    try:
        launcher = hands.launchers(_launch_of(step))
        launcher.stop(step.job, hands.patience.grace)
    except LaunchFailed as failure:
        problem = str(failure)
    if not _runs(watch, step.job):
        return DONE
    status = watch.job(step.job)
    assert status is not None
    if watch.beats(step.job, hands.patience.sign_of_life):
        where = f"pid {status.process} on {status.host}"
        return failed(f"it does not stop, and runs as {where}: {problem or 'it was not started from here'}")
    _say_goodbye(hands, status)
    return DONE


def _runs(watch: JobWatch, job: str) -> bool:
    status = watch.job(job)
    return status is not None and status.state != "stopped"


def _launch_of(step: StopJob) -> LaunchSpec:
    return msgspec.json.decode(step.launch, type=LaunchSpec) if step.launch else LaunchSpec()


def _say_goodbye(hands: ApplyContext, status: JobStatus) -> None:
    """For a job that could not say it any more, so that nobody waits for it."""
    said = msgspec.structs.replace(status, state="stopped", trouble="stopped by repl, after its end")
    record = (job_status.encode_key(JobKey(status.job)), job_status.encode(said))
    append(producer(hands.endpoint), STATUS, [record], _WRITE_S)
