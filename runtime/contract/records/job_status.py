"""The status topic holds the newest reports of each job, by key. See `status` for the reports of a slot.

`["job", job]` → JobStatus, written about once a second in a transaction of the driver's: it is the job's
heartbeat. `["spec", job]` → the JobSpec that the job runs. `["slot", job, slot]` → SlotReport. `["ends", job,
flow]` → SourceEnds of a paused flow. `["standby", job, standby]` → StandbyStatus. The topic is compacted, so
one read gives the newest of everything.
"""

from typing import Literal, TypeVar

import msgspec

from runtime.contract.records import record_values
from runtime.contract.records.record_values import MsgspecDecoder, UnreadableValue
from runtime.contract.records.status import SlotStatus
from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import BadJobSpec, JobSpec

_VERSION = b"\x01"
_T = TypeVar("_T")

JobState = Literal["starting", "running", "stopping", "stopped"]
SlotState = Literal["idle", "waiting", "submitted", "unscheduled", "running"]
StandbyState = Literal["watching", "taking_over", "running", "failed"]


class SlotView(msgspec.Struct, frozen=True, omit_defaults=True):
    """Describes a slot as the driver sees it.

    `waiting` backs off after a failure, `unscheduled` has no free core. `why` of a slot that was started
    again says how its last attempt ended.
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
    done.
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


class JobStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """Reports the state of a job: `driver` identifies one run of the application.

    `heard` is the id of the last command that was carried out. `answers`: the newest finished commands, by
    id, each with the error that it was refused with. `metrics` is the address at which the metrics endpoint
    listens, if it does; `metrics_taken` is the usual port, if another process listens there.
    `stop_requested`: repl told the job to stop, so no standby starts it again.
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
    heard: str = ""
    trouble: str = ""
    metrics: str = ""
    metrics_taken: int = 0
    slots: list[SlotView] = []
    flows: list[FlowView] = []
    answers: dict[str, str] = {}
    stop_requested: bool = False


class SlotReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Holds a slot's status as the driver stores it.

    `attempt` counts how often the driver submitted the slot.
    """

    driver: str
    attempt: int
    status: SlotStatus


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


class JobKey(msgspec.Struct, frozen=True):
    """Identifies the status of a job."""

    job: str


class SpecKey(msgspec.Struct, frozen=True):
    """Identifies the spec that a job runs."""

    job: str


class SlotKey(msgspec.Struct, frozen=True):
    """Identifies the report of a slot."""

    job: str
    slot: int


class EndsKey(msgspec.Struct, frozen=True):
    """Identifies the source's end offsets of a paused flow."""

    job: str
    flow: str


class StandbyKey(msgspec.Struct, frozen=True):
    """Identifies the report of a standby."""

    job: str
    standby: str


StatusKey = JobKey | SpecKey | SlotKey | EndsKey | StandbyKey


def encode_key(key: StatusKey) -> bytes:
    match key:
        case JobKey(job):
            return msgspec.json.encode(["job", job])
        case SpecKey(job):
            return msgspec.json.encode(["spec", job])
        case SlotKey(job, slot):
            return msgspec.json.encode(["slot", job, slot])
        case EndsKey(job, flow):
            return msgspec.json.encode(["ends", job, flow])
        case StandbyKey(job, standby):
            return msgspec.json.encode(["standby", job, standby])


def decode_key(key: bytes | None) -> StatusKey | None:
    """Decodes a key. Returns None for a key of a newer version: readers ignore unknown keys."""
    match record_values.key_parts(key):
        case ["job", str(job)]:
            return JobKey(job)
        case ["spec", str(job)]:
            return SpecKey(job)
        case ["slot", str(job), int(slot)]:
            return SlotKey(job, slot)
        case ["ends", str(job), str(flow)]:
            return EndsKey(job, flow)
        case ["standby", str(job), str(standby)]:
            return StandbyKey(job, standby)
    return None


def encode(value: JobStatus | SlotReport | JobSpec | SourceEnds | StandbyStatus) -> bytes:
    """Encodes and compresses a value: a slot with a thousand partitions sends a long report every second."""
    return _VERSION + record_values.compress(msgspec.json.encode(value))


class UnreadableStatus(UnreadableValue):
    """A status record that this version can't read."""


_job = msgspec.json.Decoder(JobStatus)
_slot = msgspec.json.Decoder(SlotReport)
_ends = msgspec.json.Decoder(SourceEnds)
_standby = msgspec.json.Decoder(StandbyStatus)


def decode_job(value: bytes) -> JobStatus:
    """Decodes a job's status. Raises UnreadableStatus."""
    return _read(_job, value)


def decode_slot(value: bytes) -> SlotReport:
    """Decodes a slot's report. Raises UnreadableStatus."""
    return _read(_slot, value)


def decode_ends(value: bytes) -> SourceEnds:
    """Decodes the ends of a paused flow's source. Raises UnreadableStatus."""
    return _read(_ends, value)


def decode_standby(value: bytes) -> StandbyStatus:
    """Decodes a standby's report. Raises UnreadableStatus."""
    return _read(_standby, value)


def decode_spec(value: bytes) -> JobSpec:
    """Decodes a job's spec. Raises UnreadableStatus, also for a spec that no job could start with."""
    try:
        return jobspec.decode(_text(value))
    except (UnreadableValue, BadJobSpec) as error:
        raise UnreadableStatus(f"status: {error}") from error


def _read(decoder: MsgspecDecoder[_T], value: bytes) -> _T:
    try:
        return record_values.decode(decoder, _text(value))
    except UnreadableValue as error:
        raise UnreadableStatus(f"status: {error}") from error


def _text(value: bytes) -> bytes:
    if value[:1] != _VERSION:
        raise UnreadableValue(f"version {value[:1].hex() or 'none'}, this runtime reads 01")
    return record_values.decompress(value[1:])
