"""Defines the snapshot of a job that the metrics show, and whether the job in it is ready."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from runtime.contract.records.job_status import FlowView, JobStatus, SlotReport
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.jobspec import FlowSpec, JobSpec

HEARTBEAT_OLD_S = 10.0


@dataclass(frozen=True, slots=True)
class FlowSnapshot:
    """This value is the snapshot of a flow.

    `partitions` are to be copied now, and `promoted` ones never again. `actions` counts the changes of mirror
    topics by kind.
    """

    spec: FlowSpec
    view: FlowView
    partitions: Collection[PartitionKey]
    actions: Mapping[str, int] = field(default_factory=dict)
    promoted: Collection[PartitionKey] = ()


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """These counts cover all topics of a cluster that the job may describe."""

    partitions: int
    under_replicated: int
    without_leader: int


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """This value is the snapshot of a consumer group that a flow syncs. Its counters start with the driver.

    `pending` partitions wait for their data, and `refused` ones until the group has no member at the
    destination. `latency_s` is the time from the first sight of the group's commit at the source to the
    commit at the destination, as last seen; None before the first.
    """

    flow: str
    group: str
    translated: int = 0
    clamped: int = 0
    refused: int = 0
    pending: int = 0
    pending_since: float | None = None
    latency_s: float | None = None


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """This value is the snapshot of a job.

    `made_at` is monotonic. `heartbeat_age_s` is the age at that time; it is infinite before the first
    heartbeat.
    """

    spec: JobSpec
    status: JobStatus
    made_at: float
    heartbeat_age_s: float
    reports: Mapping[int, SlotReport]
    flows: Sequence[FlowSnapshot]
    clusters: Mapping[str, ClusterSnapshot]
    groups: Sequence[GroupSnapshot] = ()


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
