"""Defines the results of `repl status`: made by runtime.audit, shown by planner.render. Pure data.

The field names are those of `repl status --json`: they are only ever added. Times are ms since 1970,
durations are ms, None is an unknown value or a time that never was.

`STATES` says what each partition state means, and the next step: for status, apply, docs and alerts. `next`
is empty where nothing is to be done. It is a command alone, or says what to do first, with the placeholders
{flow}, {topic} and {partition}.
"""

from typing import Literal, NamedTuple

import msgspec

from runtime.contract.records.job_status import OpenTransaction, SlotView
from runtime.contract.records.job_status import PartitionState as S
from runtime.contract.results.waves import WaveProgress

# Beside the states that a job reports itself (`status.PartitionState`):
DOWN = "down"  # no job copies it: the job is dead, was stopped, or never ran
STALLED = "stalled"  # the job reports that it copies, and the ledger does not move
UNKNOWN = "unknown"  # the destination does not answer


class ClusterTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """Describes what was written in the last `over_ms` to all topics of a cluster that are not internal.

    Transaction markers count as records. `bytes_per_s` is None where repl may not describe log directories.
    """

    over_ms: int
    records_per_s: float
    bytes_per_s: float | None


class ClusterHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a cluster: whether it answers, and why not, and what moves there each second.

    `…_in_per_s` is what flows copy into it, and `…_out_per_s` what they copy from it; None where that is not
    known. `traffic` is None where it was not measured.
    """

    name: str
    answers: bool
    id: str | None = None
    why: str = ""
    records_in_per_s: float | None = None
    bytes_in_per_s: float | None = None
    records_out_per_s: float | None = None
    bytes_out_per_s: float | None = None
    traffic: ClusterTraffic | None = None


class SlotHealth(SlotView, frozen=True, kw_only=True, omit_defaults=False):
    """Describes a slot by the driver's view and the slot's newest report."""

    report_age_ms: int | None = None
    process: int | None = None
    host: str = ""
    rss_bytes: int | None = None
    buffered_bytes: int | None = None


class StandbyHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a standby of a job that reports itself.

    The state is watching, taking_over, running (the job runs on its machine) or failed (it cannot take over).
    """

    host: str
    process: int
    state: str
    why: str = ""


class JobHealth(msgspec.Struct, frozen=True, kw_only=True):
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
    slots: list[SlotHealth] = []
    standbys_declared: int = 0
    standbys: list[StandbyHealth] = []

    @property
    def slots_running(self) -> int:
        return sum(slot.state == "running" for slot in self.slots)


class PartitionHealth(msgspec.Struct, frozen=True, kw_only=True):
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
    quarantined: int = 0
    tombstones: int = 0


class PartitionWaits(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a partition that is stopped until the topology or an operator decides how it continues."""

    flow: str
    topic: str
    partition: int
    state: str
    why: str
    next: str


class LatencyFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Describes how long the records of a topic took from their timestamps to their commits.

    They are the records that were committed in the last 30 to 60 seconds. Those of one batch count with the
    timestamp of its newest record.
    """

    records: int
    min_ms: float
    avg_ms: float
    max_ms: float
    p50_ms: float
    p99_ms: float


class TopicHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a topic of a flow by its partitions together.

    `time_to_loss_ms`: how long until the source may delete records that are not copied, if nothing more were
    copied, by its retention.ms. None where it deletes nothing by time, or that is not known. `latency` is
    None where no record was copied lately.
    """

    topic: str
    destination_topic: str | None
    state: str
    lag_records: int | None
    lag_ms: int | None
    records_per_s: float | None
    bytes_per_s: float | None
    partitions: list[PartitionHealth]
    time_to_loss_ms: int | None = None
    latency: LatencyFigures | None = None

    @property
    def lag_is_known(self) -> bool:
        """Returns whether the lag of each partition is known. `lag_records` is the sum of those known."""
        return self.lag_records is not None and all(
            partition.lag_records is not None for partition in self.partitions
        )

    @property
    def records_behind(self) -> int:
        """Returns how many records the source holds behind the positions, promoted topics included.

        `lag_records` does not count those of a topic that was promoted on its own.
        """
        return sum(
            max(partition.source_end - partition.position, 0)
            for partition in self.partitions
            if partition.source_end is not None and partition.position is not None
        )


class FlowHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a flow. `declared` is the state in the topology, `state` the one that the data shows.

    `ended`: the flow was promoted or failed over, and nothing of that is left to be done.
    `link_age_ms` is the age of the newest heartbeat that the flow copied. `next` are the next steps of its
    partitions, each once. `time_to_loss_ms` is the shortest of its topics. Latencies are of the commits in
    the last `latency_over_ms`; where that is None, of all commits since the slots began.
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
    topics: list[TopicHealth]
    next: list[str] = []
    time_to_loss_ms: int | None = None
    quarantined: int = 0
    tombstones: int = 0
    ended: bool = False

    @property
    def partitions(self) -> list[PartitionHealth]:
        return [partition for topic in self.topics for partition in topic.partitions]


class ReplicationStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the status of a topology.

    `over_ms` is the time between the two inspections from which rates are computed, 0 where there was one.
    `waves` are those of the topology's cutovers.
    """

    topology: str
    at_ms: int
    over_ms: int
    clusters: list[ClusterHealth]
    jobs: list[JobHealth]
    flows: list[FlowHealth]
    waves: list[WaveProgress] = []


_GO_ON = "repl resume {flow} --accept-loss"
_PAST_IT = (
    "go past the record with restart_from: {{offsets: {{{topic}: {{{partition}: OFFSET}}}}}} in the flow,"
    " then repl apply"
)


class Advice(NamedTuple):
    """Says what a state means, and what to do. A flow into files, or from files, may need another step."""

    means: str
    next: str = ""
    into_files: str | None = None
    from_files: str | None = None


STATES: dict[str, Advice] = {
    S.STARTING: Advice("its slot is coming up, or it is being handed from one slot to another"),
    S.COPYING: Advice("records move; there is lag"),
    S.CAUGHT_UP: Advice("the destination has all that the source has committed"),
    S.PAUSED: Advice("the flow's `state` is `paused`, or another job has taken it", "repl resume {flow}"),
    S.RETRYING: Advice(
        "something fails, and is tried again with growing pauses; the reason stands beside it"
    ),
    S.BLOCKED_AT_SOURCE: Advice(
        "a transaction at the source is open for long: no reader gets what lies behind it"
    ),
    S.UNSCHEDULED: Advice(
        "Spark has not started its slot's task, usually for lack of a free core",
        "give the job cores, or fewer slots and then repl apply",
    ),
    S.RECORD_TOO_LARGE: Advice(
        "a record is larger than the destination takes, or its batch than the slot's memory",
        "raise max.message.bytes of the mirror (and the brokers' limits), or memory of the job, as `why`"
        " says, then repl apply; it is tried again each minute",
    ),
    S.RECORD_REFUSED: Advice(
        "the destination refuses a record: a timestamp too far ahead, a null key on a compacted topic",
        f"change the mirror's settings, then repl apply; or {_PAST_IT}",
        from_files="change the settings of the topic that takes the records; it is tried again each minute",
    ),
    S.UNSUPPORTED_VERSION: Advice(
        "a broker's version of Kafka lacks a request that the copy needs (`why` names it)",
        "upgrade the broker; repl doctor CLUSTER shows what each version can do; it is tried again each"
        " minute",
    ),
    S.RECORD_CORRUPT: Advice(
        "a batch at the source does not match its checksum, or can't be read",
        f"check the source's disk: another replica may have the record whole; or {_PAST_IT}",
        into_files="check the source's disk: another replica may have the record whole; it is tried again",
        from_files="mend the file in its place, behind what was read of it; it is tried again each minute",
    ),
    S.RECORD_INVALID: Advice(
        "a record does not match the format of the flow's transform, or an expression of it fails on it"
        " (`why` names the offset)",
        f"correct the flow's transform, then repl apply; or {_PAST_IT}",
        into_files="correct the flow's transform, then repl apply",
    ),
    S.DATA_LOSS: Advice(
        "the source deleted records before they were copied (retention is shorter than the lag was)", _GO_ON
    ),
    S.RECREATED: Advice("a topic was deleted and made again under its name, at either side", _GO_ON),
    S.DIVERGED: Advice("one side's log was cut (an unclean election), so the two logs differ", _GO_ON),
    S.LEDGER_MISSING: Advice(
        "there is no progress for it, though there should be; or its record, or the ledger, cannot be read"
        " (`why` says so)",
        "restore __repl.ledger, or say where to begin with a new restart_from: {{offsets: …}} that names"
        " every partition, then repl apply; starting over without offsets would double its records",
    ),
    S.SOURCE_DELETED: Advice(
        "the topic is gone at the source; its mirror stays",
        "take the topic out of the flow, or delete its mirror with on_source_delete: delete; then repl apply",
    ),
    S.FILE_TRUNCATED: Advice(
        "a file does not hold what was read of it: it was truncated or replaced, records may be lost; once"
        " that is accepted, it is read from its beginning",
        _GO_ON,
    ),
    S.FILE_VANISHED: Advice(
        "a file is gone, and it held records that were not read; it may come back", _GO_ON
    ),
    S.PROMOTED: Advice(
        "the flow, or this topic of it, ended with all records copied; the destination is writable",
    ),
    S.FAILED_OVER: Advice("the source was lost; the flow ended with the records that had arrived"),
    DOWN: Advice("no job copies it: the job died, was stopped, or never ran", "repl apply"),
    STALLED: Advice(
        "its job says that it copies, records are waiting, and for 30 s nothing was committed",
        "read the log of its job",
    ),
    UNKNOWN: Advice(
        "the destination does not answer, so nothing is known of it; or the source does not, and all that is"
        " known is that the job had caught up",
    ),
}


def next_step(
    state: str, flow: str, topic: str, partition: int | str, files: Literal["", "into", "from"] = ""
) -> str:
    """Returns the next step, a command alone where one command is enough; "" where nothing is to be done.

    `files` says whether the flow goes into files, or comes from them.
    """
    advice = STATES[state]
    with_files = {"": None, "into": advice.into_files, "from": advice.from_files}[files]
    return (advice.next if with_files is None else with_files).format(
        flow=flow, topic=topic, partition=partition
    )
