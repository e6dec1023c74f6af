"""This module decides whether a job is ready, and names the reasons if it is not. It is pure."""

from __future__ import annotations

from runtime.contract.records.job_status import FlowView
from runtime.metrics.snapshot import FlowSnapshot, JobSnapshot

HEARTBEAT_OLD_S = 10.0


def heartbeat_age_s(picture: JobSnapshot, now: float) -> float:
    """Returns the heartbeat's age at `now`, by the clock of `made_at`: it grows even when the driver takes
    no more snapshots.
    """
    return picture.heartbeat_age_s + max(now - picture.made_at, 0.0)


def unready(picture: JobSnapshot | None, now: float) -> list[str]:
    """Returns the reasons why the job is not ready; none when the heartbeat is fresh and every active flow
    has running slots.
    """
    if picture is None:
        return ["the job is starting"]
    found = []
    age = heartbeat_age_s(picture, now)
    status = picture.status
    if age > HEARTBEAT_OLD_S:
        problem = "no heartbeat yet" if age == float("inf") else f"the last heartbeat is {age:.0f} s old"
        found.append(f"{problem}: {status.trouble}" if status.trouble else problem)
    if status.state != "running":
        found.append(f"the job is {status.state}")
    if found:
        return found
    running = {view.slot: view.attempts for view in status.slots if view.state == "running"}
    held = {
        (one.flow, one.topic, one.partition)
        for slot, report in picture.reports.items()
        if running.get(slot) == report.attempt
        for one in report.status.partitions
    }
    return [why for flow in picture.flows if (why := _waiting_reason(flow, held))]


def _waiting_reason(flow: FlowSnapshot, held: set[tuple[str, str, int]]) -> str:
    if flow.spec.state != "active":
        return ""
    name = f"flow {flow.spec.name}"
    if flow.view.generation == 0:
        return f"{name} is not taken over yet{_reason(flow.view)}"
    if not flow.partitions and flow.view.why:
        return f"{name} has nothing to copy yet{_reason(flow.view)}"
    without = sum(key not in held for key in flow.partitions)
    if without:
        return f"{name}: {without} of {len(flow.partitions)} partitions have no running slot"
    return ""


def _reason(view: FlowView) -> str:
    return f": {view.why}" if view.why else ""
