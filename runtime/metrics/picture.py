"""What metrics are made of: the job as its driver saw it at one moment. Values only, so that any thread may
read them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from runtime.contract.records.job_status import FlowView, JobStatus, SlotReport
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.jobspec import FlowSpec, JobSpec


@dataclass(frozen=True, slots=True)
class FlowPicture:
    """`partitions` are to be copied now, `promoted` never again; `actions` counts what was done to mirror
    topics, by kind.
    """

    spec: FlowSpec
    view: FlowView
    partitions: Collection[PartitionKey]
    actions: Mapping[str, int] = field(default_factory=dict)
    promoted: Collection[PartitionKey] = ()


@dataclass(frozen=True, slots=True)
class ClusterPicture:
    """Of all topics that the job may see there."""

    partitions: int
    under_replicated: int
    without_leader: int


@dataclass(frozen=True, slots=True)
class GroupPicture:
    """A consumer group that a flow keeps in step. Counters are since the driver began.

    `pending` partitions wait for their data, `refused` ones for the group to leave the destination.
    `latency_s` is the time from the group's commit at the source to ours, as last seen; None before the
    first.
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
class Picture:
    """`made_at` is monotonic, `heartbeat_age_s` as of then: infinite before the first one."""

    spec: JobSpec
    status: JobStatus
    made_at: float
    heartbeat_age_s: float
    reports: Mapping[int, SlotReport]
    flows: Sequence[FlowPicture]
    clusters: Mapping[str, ClusterPicture]
    groups: Sequence[GroupPicture] = ()
