"""The status topic: what a job last said of itself, by key. See `status` for what a slot says.

`["job", job]` → JobStatus, written about once a second in a transaction of the driver's: it is the job's
heartbeat. `["spec", job]` → the JobSpec that the job runs by. `["slot", job, slot]` → SlotReport. `["ends",
job, flow]` → SourceEnds of a paused flow. The topic is compacted, so one read gives the newest of everything.
"""

from typing import Literal, TypeVar

import msgspec

from runtime.contract.records import record_values
from runtime.contract.records.record_values import Decoder, UnreadableValue
from runtime.contract.records.status import SlotStatus
from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import BadJobSpec, JobSpec

_VERSION = b"\x01"
_T = TypeVar("_T")

JobState = Literal["starting", "running", "stopping", "stopped"]
SlotState = Literal["idle", "waiting", "submitted", "unscheduled", "running"]


class SlotView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A slot as the driver sees it. `waiting` backs off after a failure, `unscheduled` has no free core.

    `why` of a slot that runs again is how its last attempt ended.
    """

    slot: int
    state: SlotState
    since_ms: int
    attempts: int = 0
    partitions: int = 0
    why: str = ""


class FlowView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A flow as the driver sees it: `why` says what is in its way, `notes` what it could not do. `ended`: it
    was promoted or failed over, and all that belongs to that is done; `promoted`: the spec's patterns of
    topics of which the same is true.
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
    """`driver` names one life of the application; `heard` is the last command that was carried out.

    `answers`: the newest commands that are done with, by id, each with the error that it was refused with.
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
    slots: list[SlotView] = []
    flows: list[FlowView] = []
    answers: dict[str, str] = {}


class SlotReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """`attempt` counts the times that the driver submitted the slot."""

    driver: str
    attempt: int
    status: SlotStatus


class SourceEnds(msgspec.Struct, frozen=True, array_like=True):
    """Where the partitions of a flow end at its source, by topic; no slot reads them to say so."""

    at_ms: int
    topics: dict[str, dict[int, int]]


class JobKey(msgspec.Struct, frozen=True):
    job: str


class SpecKey(msgspec.Struct, frozen=True):
    job: str


class SlotKey(msgspec.Struct, frozen=True):
    job: str
    slot: int


class EndsKey(msgspec.Struct, frozen=True):
    job: str
    flow: str


StatusKey = JobKey | SpecKey | SlotKey | EndsKey


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


def decode_key(key: bytes | None) -> StatusKey | None:
    """None for a key of a newer version: a reader ignores what it does not know."""
    match record_values.key_parts(key):
        case ["job", str(job)]:
            return JobKey(job)
        case ["spec", str(job)]:
            return SpecKey(job)
        case ["slot", str(job), int(slot)]:
            return SlotKey(job, slot)
        case ["ends", str(job), str(flow)]:
            return EndsKey(job, flow)
    return None


def encode(value: JobStatus | SlotReport | JobSpec | SourceEnds) -> bytes:
    """Compressed: a slot with a thousand partitions says a lot, and says it again every second."""
    return _VERSION + record_values.compress(msgspec.json.encode(value))


class UnreadableStatus(UnreadableValue):
    """A status record that this version can't read."""


_job = msgspec.json.Decoder(JobStatus)
_slot = msgspec.json.Decoder(SlotReport)
_ends = msgspec.json.Decoder(SourceEnds)


def decode_job(value: bytes) -> JobStatus:
    """Raises UnreadableStatus."""
    return _read(_job, value)


def decode_slot(value: bytes) -> SlotReport:
    """Raises UnreadableStatus."""
    return _read(_slot, value)


def decode_ends(value: bytes) -> SourceEnds:
    """Raises UnreadableStatus."""
    return _read(_ends, value)


def decode_spec(value: bytes) -> JobSpec:
    """Raises UnreadableStatus, also for a spec that no job could start with."""
    try:
        return jobspec.decode(_text(value))
    except (UnreadableValue, BadJobSpec) as error:
        raise UnreadableStatus(f"status: {error}") from error


def _read(decoder: Decoder[_T], value: bytes) -> _T:
    try:
        return record_values.decode(decoder, _text(value))
    except UnreadableValue as error:
        raise UnreadableStatus(f"status: {error}") from error


def _text(value: bytes) -> bytes:
    if value[:1] != _VERSION:
        raise UnreadableValue(f"version {value[:1].hex() or 'none'}, this runtime reads 01")
    return record_values.decompress(value[1:])
