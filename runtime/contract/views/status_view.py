"""Defines the results of `repl status`: made by runtime.audit, shown by planner.render. Pure data.

The field names are those of `repl status --json`: they are only ever added. Times are ms since 1970,
durations are ms, None is an unknown value or a time that never was.
"""

import msgspec

from runtime.contract.records.status import OpenTransaction

# Beside the states that a job reports itself (`status.PartitionState`):
DOWN = "down"  # no job copies it: the job is dead, was stopped, or never ran
STALLED = "stalled"  # the job reports that it copies, and the ledger does not move
UNKNOWN = "unknown"  # the destination does not answer


class ClusterStatusView(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a cluster: whether it answers, and why not."""

    name: str
    answers: bool
    id: str | None = None
    why: str = ""


class SlotStatusView(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a slot by the driver's view and the slot's newest report."""

    slot: int
    state: str
    since_ms: int | None
    attempts: int
    partitions: int
    why: str
    report_age_ms: int | None = None
    process: int | None = None
    host: str = ""
    rss_bytes: int | None = None
    buffered_bytes: int | None = None


class StandbyStatusView(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a standby of a job that reports itself.

    The state is watching, taking_over, running (the job runs on its machine) or failed (it cannot take over).
    """

    host: str
    process: int
    state: str
    why: str = ""


class JobStatusView(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a job. `up` is derived from its heartbeat alone. `generation` is the newest of its flows."""

    name: str
    destination: str
    up: bool
    state: str
    why: str
    generation: int | None = None
    heartbeat_ms: int | None = None
    heartbeat_age_ms: int | None = None
    started_ms: int | None = None
    driver: str = ""
    application: str = ""
    master: str = ""
    host: str = ""
    process: int | None = None
    trouble: str = ""
    metrics: str = ""
    metrics_taken: int = 0
    flows: list[str] = []
    slots: list[SlotStatusView] = []
    standbys_declared: int = 0
    standbys: list[StandbyStatusView] = []

    @property
    def slots_running(self) -> int:
        return sum(slot.state == "running" for slot in self.slots)


class PartitionStatusView(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a partition of a flow.

    `source_end` is the last stable offset. `source_end_seen_ms`: the source does not answer, and `source_end`
    is its end as the job saw it at that time. `position`: every source offset below it is replicated. Totals
    are the ledger's. `blocked_by` is the transaction of the state `blocked_at_source`. `next` is the next
    step, a command alone where one is enough; "" where nothing is to be done.
    """

    topic: str
    partition: int
    destination_topic: str | None
    state: str
    since_ms: int | None
    why: str
    needs_someone: bool
    foreign_writes: bool
    slot: int | None
    source_start: int | None
    source_end: int | None
    source_end_seen_ms: int | None
    source_high_watermark: int | None
    destination_start: int | None
    destination_end: int | None
    position: int | None
    lag_records: int | None
    lag_ms: int | None
    last_fetch_ms: int | None
    last_commit_ms: int | None
    last_timestamp_ms: int | None
    caught_up_since_ms: int | None
    records: int
    bytes: int
    dropped: int
    given_up: int
    records_per_s: float | None
    bytes_per_s: float | None
    blocked_by: OpenTransaction | None = None
    next: str = ""


class PartitionWaits(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a partition that is stopped until the topology or an operator says how it continues."""

    flow: str
    topic: str
    partition: int
    state: str
    why: str
    next: str


class TopicStatusView(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a topic of a flow by its partitions together."""

    topic: str
    destination_topic: str | None
    state: str
    lag_records: int | None
    lag_ms: int | None
    records_per_s: float | None
    bytes_per_s: float | None
    partitions: list[PartitionStatusView]


class FlowStatusView(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a flow. `declared` is the state in the topology, `state` the one that the data shows.

    `link_age_ms` is the age of the newest heartbeat that the flow copied. `next` are the next steps of its
    partitions, each once. Latencies are of the commits in the last `latency_over_ms`; where that is None, of
    all commits since the slots began.
    """

    name: str
    source: str
    destination: str
    job: str
    state: str
    declared: str
    why: str
    notes: list[str]
    source_cluster_id: str | None
    destination_cluster_id: str | None
    source_answers: bool
    destination_answers: bool
    generation: int | None
    lag_records: int | None
    lag_ms: int | None
    rpo_ms: int | None
    rpo_met: bool | None
    records_per_s: float | None
    bytes_per_s: float | None
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    latency_over_ms: int | None
    dropped: int
    throttled_ms: int
    stuck_lanes: list[str]
    link_age_ms: int | None
    states: dict[str, int]
    topics: list[TopicStatusView]
    next: list[str] = []

    @property
    def partitions(self) -> list[PartitionStatusView]:
        return [one for topic in self.topics for one in topic.partitions]


class StatusView(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the status of a topology.

    `over_ms` is the time between the two inspections from which rates are computed, 0 where there was one.
    """

    topology: str
    at_ms: int
    over_ms: int
    clusters: list[ClusterStatusView]
    jobs: list[JobStatusView]
    flows: list[FlowStatusView]
