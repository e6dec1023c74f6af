"""Ends the wait of an apply for a job that a broker denies a right, with what was refused."""

import time
from collections.abc import Callable
from contextlib import suppress

from planner.apply.context import ApplyContext, JobLauncher, LaunchFailed
from planner.kafka.log import JobStatusTable
from runtime.contract.records.job_status import PartitionState
from runtime.contract.spec.jobspec import JobSpec

_DENIED = "AUTHORIZATION_FAILED"  # a part of the names of all errors that mean a missing right
_READ_LOG_EVERY_S = 2.0

GiveUp = Callable[[], str | None]


def denied(spec: JobSpec, table: JobStatusTable) -> str:
    """Returns which partition a broker does not let the job copy for want of a right; "" if none is known."""
    active = {flow.name for flow in spec.flows if flow.state == "active"}
    for one in table.partitions(spec.job):
        if one.flow in active and one.state is PartitionState.RETRYING and _DENIED in one.why:
            return f"flow.{one.flow}: {one.topic}-{one.partition} is not copied: {one.why}"
    return ""


def first_of(*checks: GiveUp) -> GiveUp:
    """Returns a check that ends the wait with the first reason of several checks."""
    return lambda: next((why for check in checks if (why := check()) is not None), None)


def while_denied(context: ApplyContext, missing: Callable[[], str]) -> GiveUp:
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


def denial_in_log(launcher: JobLauncher, job: str) -> Callable[[], str]:
    """Returns a function that finds the line in which a job that cannot report says which right it lacks."""
    checked_at, found = time.monotonic(), ""

    def look() -> str:
        nonlocal checked_at, found
        if time.monotonic() - checked_at > _READ_LOG_EVERY_S:
            checked_at, found = time.monotonic(), ""
            with suppress(LaunchFailed):
                lines = reversed(launcher.tail(job))
                found = next((line.strip() for line in lines if _DENIED in line), "")
        return found

    return look
