"""This module holds the snapshot from which metrics are made: the job as its driver saw it at one moment.

It holds only values, so that any thread may read it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from runtime.contract.records.job_status import FlowView, JobStatus, SlotReport
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.jobspec import FlowSpec, JobSpec


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
