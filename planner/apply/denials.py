"""Says which right is missing where a broker denies a request: of a step of an apply, or of a job.

The wait of an apply for a job ends when a right stays missing, or when a flow can't start.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import replace

from planner.model.step import Result, Step, StepResult
from runtime.contract.launching import Launcher, LaunchError
from runtime.contract.records.job_status import JobStatusTable, PartitionState
from runtime.contract.spec.jobspec import JobSpec

_DENIED = "AUTHORIZATION_FAILED"  # a part of the names of all errors that mean a missing right
_DENIED_TRANSACTIONS = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
_READ_LOG_EVERY_S = 2.0
_MESSAGE = re.compile(r'(?:message|error)="((?:[^"\\]|\\.)*)"')  # of a line of the job's log

GiveUp = Callable[[], Awaitable[str | None]]


def naming_right(step: Step, result: StepResult) -> StepResult:
    """Returns the result; where a broker refused the step for want of a right, it names the right."""
    if result.result is not Result.FAILED or _DENIED not in result.why or not step.right:
        return result
    why = f"{result.why} — grant {step.right} at {step.cluster} to the principal of this apply"
    return replace(result, why=why)


def denied(spec: JobSpec, table: JobStatusTable) -> str:
    """Returns which partition a broker does not let the job copy for want of a right; "" if none is known."""
    active = {flow.name for flow in spec.flows if flow.state == "active"}
    for partition in table.partitions(spec.job):
        if (
            partition.flow in active
            and partition.state is PartitionState.RETRYING
            and _DENIED in partition.why
        ):
            named = f"flow.{partition.flow}: {partition.topic}-{partition.partition}"
            return f"{named} is not copied: {partition.why}"
    return ""


def first_of(*checks: GiveUp) -> GiveUp:
    """Returns a check that ends the wait with the first reason of several checks."""

    async def give_up() -> str | None:
        for check in checks:
            if (why := await check()) is not None:
                return why
        return None

    return give_up


def lasting(
    seconds: float, reason: Callable[[], Awaitable[str]], hint: Callable[[str], str] | None = None
) -> GiveUp:
    """Returns a check that ends the wait when there has been a reason for so long, with the last one."""
    since: float | None = None

    async def give_up() -> str | None:
        nonlocal since
        why = await reason()
        if not why:
            since = None
            return None
        since = since if since is not None else time.monotonic()
        if time.monotonic() - since < seconds:
            return None
        return f"{why} — {hint(why)}" if hint is not None else why

    return give_up


def right_to_grant(spec: JobSpec, why: str) -> str:
    """Returns the hint for a job that is denied something, as the broker said it."""
    if _DENIED_TRANSACTIONS in why:
        where = f"at {spec.destination}"
        return (
            f"grant WRITE on the transactional ids that begin with repl. {where} to the principal of the job"
        )
    doctor = " and ".join(f"repl doctor {cluster}" for cluster in sorted(spec.clusters))
    return f"grant the right; {doctor} name those that are missing"


LogLines = Callable[[], Awaitable[list[str]]]
LAST_LINES = 15  # of the log of a job that does not start


async def lines_since(launcher: Launcher, job: str) -> LogLines:
    """Returns a function that reads the lines which the job has logged since this call.

    A driver that ran before may have been denied a right that was granted since.
    """
    before = await _tail(launcher, job)

    async def lines() -> list[str]:
        return [line for line in await _tail(launcher, job) if line not in before]

    return lines


async def _tail(launcher: Launcher, job: str) -> Collection[str]:
    with suppress(LaunchError):
        return await asyncio.to_thread(launcher.tail, job, LAST_LINES)
    return ()


def denial_in_log(lines: LogLines, every_s: float = _READ_LOG_EVERY_S) -> Callable[[], Awaitable[str]]:
    """Returns a function that finds the line in which a job that cannot report says which right it lacks."""
    checked_at, denial = time.monotonic(), ""

    async def look() -> str:
        nonlocal checked_at, denial
        if time.monotonic() - checked_at >= every_s:
            checked_at = time.monotonic()
            line = next((line.strip() for line in reversed(await lines()) if _DENIED in line), "")
            message = _MESSAGE.search(line)
            denial = message[1] if message else line
        return denial

    return look
