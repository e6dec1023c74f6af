"""What `repl offsets` and `repl locate` found: values that are shown and nothing else."""

from enum import StrEnum

import msgspec

BY_MAP = "map"
BY_TIME = "time"


class OffsetSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of a group. `source` is what it committed at the source, `translation` what that is at
    the destination now, `committed` what stands there. `as_of_ms`: the source's side is from a checkpoint of
    that time, because the source does not answer. `by`: the offset map or, for what lies below it, record
    time; empty where there is no translation. What is not `exact` may be read again, never skipped.
    """

    topic: str
    partition: int
    destination_topic: str
    source: int | None
    translation: int | None
    committed: int | None
    state: str
    clamped: bool = False
    exact: bool = True
    by: str = ""
    why: str = ""
    as_of_ms: int | None = None


class GroupSeen(msgspec.Struct, frozen=True, kw_only=True):
    """`state_there`, `state_here`: of the group at the source and the destination, empty where it is not.
    `unsynced`: why the flow leaves the group alone, where it does.
    """

    flow: str
    group: str
    source_cluster: str
    destination_cluster: str
    source_answers: bool
    source_why: str
    synced: bool
    unsynced: str
    state_there: str
    state_here: str
    partitions: list[OffsetSeen]


class Found(StrEnum):
    """`exact`: that very record. `next`: it was not copied, the first copied one behind it is there. `end`:
    it was not copied, and nothing behind it yet. `no_record`: no record is as late as the timestamp.
    `replayed`: salvage replayed it; the other offset is None where it was not found in time.
    """

    EXACT = "exact"
    NEXT = "next"
    END = "end"
    NOT_YET = "not_yet"
    UNMAPPED = "unmapped"
    NO_RECORD = "no_record"
    REPLAYED = "replayed"


class Located(msgspec.Struct, frozen=True, kw_only=True):
    """A record at one side, `topic`-`partition` at `offset`, and where it is at the other."""

    flow: str
    reverse: bool
    cluster: str
    topic: str
    partition: int
    offset: int | None
    timestamp_ms: int | None
    other_cluster: str
    other_topic: str
    found: Found
    other_offset: int | None = None
    replicated_through: int | None = None
    low: int | None = None
