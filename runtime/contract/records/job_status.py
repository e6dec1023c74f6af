"""The status topic holds the newest reports of each job and of its slots, by key.

`["job", job]` → JobStatus, written about once a second in a transaction of the driver's: it is the job's
heartbeat. `["spec", job]` → the JobSpec that the job runs. `["slot", job, slot]` → SlotReport, and
`["slot_heartbeat", job, slot]` → SlotHeartbeat, once a second. `["ends", job, flow]` → SourceEnds of a paused
flow. `["standby", job, standby]` → StandbyStatus. The topic is compacted, so one read gives the newest of
everything.

Reports hold facts with their time, no judgement. Status for people is computed from offsets and the ledger;
this adds what only the job knows (states, rates). A reader ignores unknown fields, so that an older version
still reads a newer job.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from itertools import zip_longest
from typing import Literal, NamedTuple, TypeVar

import msgspec

from runtime.contract.records import record_values
from runtime.contract.records.latency import TopicLatency
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.records.record_values import RecordCodec, UnreadableValue
from runtime.contract.spec import jobspec
from runtime.contract.spec.flow import ENDED
from runtime.contract.spec.jobspec import BadJobSpec, FlowSpec, JobSpec


class PartitionState(StrEnum):
    """Lists the states of a partition that a job reports."""

    STARTING = "starting"
    COPYING = "copying"
    CAUGHT_UP = "caught_up"
    PAUSED = "paused"
    RETRYING = "retrying"
    BLOCKED_AT_SOURCE = "blocked_at_source"
    RECORD_TOO_LARGE = "record_too_large"
    RECORD_REFUSED = "record_refused"
    RECORD_CORRUPT = "record_corrupt"
    RECORD_INVALID = "record_invalid"
    DATA_LOSS = "data_loss"
    RECREATED = "recreated"
    DIVERGED = "diverged"
    LEDGER_MISSING = "ledger_missing"
    SOURCE_DELETED = "source_deleted"
    FILE_TRUNCATED = "file_truncated"
    FILE_VANISHED = "file_vanished"
    UNSUPPORTED_VERSION = "unsupported_version"
    UNSCHEDULED = "unscheduled"
    PROMOTED = "promoted"
    FAILED_OVER = "failed_over"

    @property
    def needs_decision(self) -> bool:
        """Returns whether the partition waits for a decision: in the topology or by an operator."""
        return self in NEEDS_DECISION

    @property
    def over_loss(self) -> bool:
        """Returns whether the partition stopped over lost records.

        It continues once an operator accepts the loss.
        """
        return self in _OVER_LOSS


class Finding(NamedTuple):
    """Says why a partition does not go on: the state that it enters, and the text for its status."""

    state: PartitionState
    why: str


_OVER_LOSS = frozenset(
    {
        PartitionState.DATA_LOSS,
        PartitionState.RECREATED,
        PartitionState.DIVERGED,
        PartitionState.FILE_TRUNCATED,
        PartitionState.FILE_VANISHED,
    }
)
NEEDS_DECISION = _OVER_LOSS | {
    PartitionState.RECORD_TOO_LARGE,
    PartitionState.RECORD_REFUSED,
    PartitionState.RECORD_CORRUPT,
    PartitionState.RECORD_INVALID,
    PartitionState.LEDGER_MISSING,
    PartitionState.SOURCE_DELETED,
    PartitionState.UNSUPPORTED_VERSION,
}
# In these states a log was replaced: how much of the source is at the destination is unknown.
ANOTHER_LOG = (PartitionState.RECREATED, PartitionState.DIVERGED)


class OpenTransaction(msgspec.Struct, frozen=True, omit_defaults=True):
    """Describes a source transaction that holds back the last stable offset, from `start_offset` on.

    `transactional_id`, `coordinator_state` (Kafka's name: Ongoing, …), `started_ms` and `timeout_ms` are
    empty or 0 where they are not known; `unknown` says why, and which permission is missing. `abort_command`
    aborts the transaction.
    """

    producer_id: int
    start_offset: int
    transactional_id: str = ""
    coordinator_state: str = ""
    started_ms: int = 0
    timeout_ms: int = 0
    abort_command: str = ""
    unknown: str = ""


class PartitionStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """Reports one partition of a flow, by its name at the source.

    Times are ms since 1970, 0 where there is none.

    `position`: every source offset below it is replicated (committed). `source_end` is the newest known last
    stable offset: a read_committed reader can read up to it. `last_fetch_ms`: the source last answered for
    the partition, also when it had no new records. `foreign_writes` says that other producers write to the
    destination's partition. `records`, `bytes`, `dropped`, `quarantined`, `tombstones` and `lost` (source
    offsets given up on purpose) are the ledger's, since the flow began; `transactions` and `aborts` are this
    slot's. `tombstones` are those of filtered records; `records` counts them, too. `blocked_by` is set in the
    state `blocked_at_source`. `rate`: bytes a second, -1 where it was not measured for long enough. By it the
    driver levels the slots' loads, and the next driver places partitions at its start.
    """

    flow: str
    topic: str
    partition: int
    state: PartitionState
    since_ms: int
    why: str = ""
    foreign_writes: bool = False
    position: int = -1
    destination_end: int = -1
    source_start: int = -1
    source_end: int = -1
    source_high_watermark: int = -1
    last_fetch_ms: int = 0
    last_commit_ms: int = 0
    caught_up_since_ms: int = 0
    last_timestamp: int = -1
    records: int = 0
    bytes: int = 0
    dropped: int = 0
    transactions: int = 0
    aborts: int = 0
    lost: int = 0
    blocked_by: OpenTransaction | None = None
    quarantined: int = 0
    tombstones: int = 0
    rate: int = -1

    @property
    def key(self) -> PartitionKey:
        """The partition, by its name at the source."""
        return PartitionKey(self.flow, self.topic, self.partition)

    @property
    def lag_records(self) -> int | None:
        """The records that a read_committed reader gets and that are not replicated; None if not known."""
        if self.source_end < 0 or self.position < 0:
            return None
        return max(self.source_end - self.position, 0)


class FlowStats(msgspec.Struct, frozen=True, omit_defaults=True):
    """Holds totals of one flow in one slot since the slot began.

    `latency_counts` counts records per bound of `LATENCY_BOUNDS_MS`, from a record's timestamp to its commit,
    with one more count for slower records. `latencies` are those of the last minute, by topic.
    `schemas_waiting` are schemas that can't be registered at the destination now. `note` is what the flow's
    status says of the slot.
    """

    flow: str
    records: int = 0
    bytes: int = 0
    dropped: int = 0
    commits: int = 0
    aborts: int = 0
    throttled_ms: int = 0
    latency_counts: list[int] = []
    latency_sum_ms: float = 0
    stuck_lanes: list[str] = []
    quarantined: int = 0
    latencies: list[TopicLatency] = []
    merged_files: int = 0
    tombstones: int = 0
    schemas_waiting: int = 0
    note: str = ""


class SlotReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Reports a slot's state, flows and partitions.

    `assignment` is the newest version of which the slot has released every partition that the version
    removes. `attempt` counts how often the driver `driver` submitted the slot.
    """

    slot: int
    at_ms: int
    assignment: int
    driver: str = ""
    attempt: int = 0
    process: int = 0
    host: str = ""
    rss_bytes: int = 0
    buffered_bytes: int = 0
    flows: list[FlowStats] = []
    partitions: list[PartitionStatus] = []


_T = TypeVar("_T")

JobState = Literal["starting", "running", "stopping", "stopped"]
SlotState = Literal["idle", "waiting", "submitted", "unscheduled", "running"]
StandbyState = Literal["watching", "taking_over", "running", "failed"]


class SlotView(msgspec.Struct, frozen=True, omit_defaults=True):
    """Describes a slot as the driver sees it.

    `waiting` backs off after a failure, `unscheduled` has no free core: `why` says what its cluster lacks,
    and is empty while an executor starts. `why` of a slot that was started again says how its last attempt
    ended.
    """

    slot: int
    state: SlotState
    since_ms: int
    attempts: int = 0
    partitions: int = 0
    why: str = ""


class FlowView(msgspec.Struct, frozen=True, omit_defaults=True):
    """Describes a flow as the driver sees it.

    `why` names an obstacle, `notes` list what the driver could not do. `ended`: the flow was promoted or
    failed over, and all work of that is done. `promoted`: the spec's patterns of topics whose promotion is
    done. `attempts`: how often the flow has tried to start, the present attempt included; 0 once it has
    started. More than one means that all before it failed, and `why` says why.
    """

    flow: str
    state: str
    generation: int = 0
    source_cluster_id: str = ""
    destination_cluster_id: str = ""
    source_answers: bool = False
    topics: int = 0
    partitions: int = 0
    why: str = ""
    notes: list[str] = []
    ended: bool = False
    promoted: list[str] = []
    attempts: int = 0

    def is_done_with(self, flow: FlowSpec) -> bool:
        """Returns whether the end of the flow, and the promotion of its topics, is complete.

        The end counts once its generation is in the ledger: then no job can copy the flow any more, and the
        offsets of its groups are final.
        """
        if flow.state in ENDED:
            return self.state == flow.state and self.ended
        return flow.state != "active" or set(flow.promoted) <= set(self.promoted)


class JobStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """Reports the state of a job: `driver` identifies one run of the application.

    `answers`: the newest finished commands, by id, each with the error that it was refused with. `metrics` is
    the address at which the metrics endpoint listens, if it does; `metrics_taken` is the usual port, if
    another process listens there.
    `stop_requested`: repl told the job to stop, so no standby starts it again. `shipped` grows while Spark
    copies files of the starting job to its cluster, in bytes.
    """

    job: str
    topology: str
    driver: str
    state: JobState
    at_ms: int
    started_ms: int
    application: str = ""
    master: str = ""
    host: str = ""
    process: int = 0
    trouble: str = ""
    metrics: str = ""
    metrics_taken: int = 0
    slots: list[SlotView] = []
    flows: list[FlowView] = []
    answers: dict[str, str] = {}
    stop_requested: bool = False
    shipped: int = 0

    @property
    def where(self) -> str:
        """Where the driver runs: its pod on Kubernetes, else its process and its machine."""
        if not self.host:
            return "a process that its heartbeat does not name"
        if self.master.startswith("k8s://"):
            return f"pod {self.host}"
        return f"pid {self.process} on {self.host}" if self.process else self.host


class SlotHeartbeat(msgspec.Struct, frozen=True, array_like=True):
    """Shows the driver that this attempt of a slot runs and reaches the destination.

    `throttled_ms` is how long a broker of the destination then throttled the slot, because of a quota.
    """

    driver: str
    attempt: int
    throttled_ms: int = 0


class SourceEnds(msgspec.Struct, frozen=True, array_like=True):
    """Holds the end offsets of a flow's source partitions, by topic, while no slot reads and reports them."""

    at_ms: int
    topics: dict[str, dict[int, int]]


class StandbyStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """Reports the state of a standby: a process on another machine that takes the job over.

    A record with the state `taking_over` is a claim. Its offset orders the claims of several standbys; later
    records of the same claim repeat it in `claim`. `running`: the job runs on the standby's machine.
    """

    standby: str
    state: StandbyState
    at_ms: int
    host: str = ""
    process: int = 0
    claim: int = -1
    why: str = ""


class StatusKey(NamedTuple):
    """Identifies a record: its kind, the job, and the slot's number or the name of the flow or standby."""

    kind: Literal["job", "spec", "slot", "slot_heartbeat", "ends", "standby"]
    job: str
    part: int | str = ""


def encode_key(key: StatusKey) -> bytes:
    return msgspec.json.encode(key[:2] if key.part == "" else key)


def decode_key(key: bytes | None) -> StatusKey | None:
    """Decodes a key. Returns None for a key of a newer version: readers ignore unknown keys."""
    match record_values.key_parts(key):
        case ["job" | "spec" as kind, str(job)]:
            return StatusKey(kind, job)
        case ["slot" | "slot_heartbeat" as kind, str(job), part] if type(part) is int:
            return StatusKey(kind, job, part)
        case ["ends" | "standby" as kind, str(job), str(part)]:
            return StatusKey(kind, job, part)
    return None


def _codec(kind: type[_T]) -> RecordCodec[_T]:
    """Returns the codec of a value, which is compressed: a slot of 1,000 partitions reports each second."""
    return RecordCodec("status", kind, packed_from=0)


_spec = _codec(JobSpec)
_value = _codec(object)
decode_job = _codec(JobStatus).decode
decode_slot = _codec(SlotReport).decode
decode_slot_heartbeat = _codec(SlotHeartbeat).decode
decode_ends = _codec(SourceEnds).decode
decode_standby = _codec(StandbyStatus).decode


def encode(value: JobStatus | SlotReport | SlotHeartbeat | JobSpec | SourceEnds | StandbyStatus) -> bytes:
    return _value.encode(value)


def decode_spec(value: bytes) -> JobSpec:
    """Decodes a job's spec. Raises UnreadableValue, also for a spec that no job could start with."""
    return checked(_spec.decode(value), "status")


def checked(spec: JobSpec, topic: str) -> JobSpec:
    """Returns the spec of a record. Raises UnreadableValue where no job could start with it."""
    try:
        jobspec.check(spec)
    except BadJobSpec as error:
        raise UnreadableValue(f"{topic}: {error}") from error
    return spec


class JobStatusTable(msgspec.Struct):
    """Holds the newest records of the status topic.

    `specs` has None for a job whose spec this release can't read. `unreadable` are the heartbeats that this
    release can't read, each with the reason: another one sends them, and what that job does is not known.
    """

    jobs: dict[str, JobStatus] = {}
    unreadable: dict[str, tuple[bytes, str]] = {}
    specs: dict[str, JobSpec | None] = {}
    reports: dict[tuple[str, int], SlotReport] = {}
    ends: dict[tuple[str, str], SourceEnds] = {}
    standbys: dict[tuple[str, str], StandbyStatus] = {}

    def update(self, values: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Adds new values of keys. Only the newest of each key is decoded."""
        for key, value in dict(values).items():
            with suppress(UnreadableValue):  # written by a newer release: it is not interpreted
                match decode_key(key):
                    case StatusKey("job", job) if value is not None:
                        self._heartbeat(job, value)
                    case StatusKey("spec", job) if value is not None:
                        self.specs[job] = None
                        self.specs[job] = decode_spec(value)
                    case StatusKey("slot", job, int(slot)) if value is not None:
                        self.reports[job, slot] = decode_slot(value)
                    case StatusKey("slot", job, int(slot)):
                        self.reports.pop((job, slot), None)  # other slots report its partitions now
                    case StatusKey("ends", job, str(flow)) if value is not None:
                        self.ends[job, flow] = decode_ends(value)
                    case StatusKey("standby", job, str(standby)) if value is not None:
                        self.standbys[job, standby] = decode_standby(value)
                    case StatusKey("standby", job, str(standby)):
                        self.standbys.pop((job, standby), None)

    def _heartbeat(self, job: str, value: bytes) -> None:
        try:
            self.jobs[job] = decode_job(value)
            self.unreadable.pop(job, None)
        except UnreadableValue as wrong:
            self.unreadable[job] = value, str(wrong)
            self.jobs.pop(job, None)

    def copy(self) -> "JobStatusTable":
        """Returns the table as it is now; later updates do not change it."""
        return JobStatusTable(*map(dict, msgspec.structs.astuple(self)))

    def reports_of(self, status: JobStatus) -> dict[int, SlotReport]:
        """Returns the reports that count: of the slots that the driver of this status has started.

        That of an earlier attempt is outdated, unless the slot starts again for the same partitions. A flow
        in rounds has no assignment, and its report may be of the round before.
        """
        attempts = {
            view.slot: view.attempts
            for view in status.slots
            if view.state == "running" or not view.partitions
        }
        return {
            slot: report
            for (job, slot), report in self.reports.items()
            if job == status.job
            and report.driver == status.driver
            and (not report.assignment or report.attempt >= attempts.get(slot, 0))
        }

    def partitions(self, job: str) -> list[PartitionStatus]:
        """Returns the partitions of a job as its slots last reported them."""
        status = self.jobs.get(job)
        reports = self.reports_of(status).values() if status is not None else ()
        return [partition for _, partition in newest_partitions(reports).values()]

    def lag(self, job: str) -> Mapping[str, int]:
        """Returns the records not copied yet, by flow, as far as they are known."""
        lags = Counter[str]()
        for partition in self.partitions(job):
            lags[partition.flow] += partition.lag_records or 0
        return dict(lags)


def with_unchanged(report: SlotReport, before: SlotReport) -> SlotReport:
    """Returns the report with objects of the report before, for partitions of which it says nothing new.

    So a reader of many reports compares objects in place of fields. Each report has another `last_fetch_ms`,
    which is nothing new: an object that is used again has that of an earlier report.
    """
    known = before.partitions
    if len(known) != len(report.partitions):
        places = {status.key: status for status in known}
        known = [places.get(status.key, status) for status in report.partitions]
    partitions = [
        old if old == msgspec.structs.replace(status, last_fetch_ms=old.last_fetch_ms) else status
        for status, old in zip(report.partitions, known, strict=True)
    ]
    return msgspec.structs.replace(report, partitions=partitions)


def changed_partitions(report: SlotReport, before: SlotReport | None) -> list[PartitionStatus]:
    """Returns the partitions whose objects are not those of the report before, at the same place."""
    if before is None:
        return report.partitions
    pairs = zip_longest(report.partitions, before.partitions[: len(report.partitions)])
    return [status for status, old in pairs if status is not old]


def rates_of(partitions: Iterable[PartitionStatus]) -> dict[PartitionKey, int]:
    """Returns the rates of the partitions that were measured; the last status of a partition counts."""
    return {partition.key: partition.rate for partition in partitions if partition.rate >= 0}


def newest_partitions(
    reports: Iterable[SlotReport],
) -> dict[PartitionKey, tuple[SlotReport, PartitionStatus]]:
    """Returns the newest status of each partition, with the report that holds it.

    A partition that moved is in the reports of two slots at first.
    """
    newest: dict[PartitionKey, tuple[SlotReport, PartitionStatus]] = {}
    for report in reports:
        for partition in report.partitions:
            if (key := partition.key) not in newest or newest[key][0].at_ms < report.at_ms:
                newest[key] = report, partition
    return newest
