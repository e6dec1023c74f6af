"""Defines the results of `repl offsets` and `repl locate`: values that are only shown."""

from enum import StrEnum

import msgspec

BY_MAP = "map"
BY_TIME = "time"


class GroupOffsetView(msgspec.Struct, frozen=True, kw_only=True):
    """Holds one partition of a group.

    `source` is the group's commit at the source, `translation` its translation to the destination now,
    `committed` the group's commit at the destination. `as_of_ms`: the source's side is from a checkpoint of
    that time, because the source does not answer. `by`: the offset map or, for offsets below it, record time;
    empty where there is no translation. Records behind an offset that is not `exact` may be read again, never
    skipped.
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


class GroupOffsetsView(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a group over one flow.

    `state_there`, `state_here`: of the group at the source and the destination, empty where it does not
    exist. `unsynced`: why the flow does not sync the group, where it does not.
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
    partitions: list[GroupOffsetView]


class LocateResult(StrEnum):
    """Lists the results of locating a record.

    `exact`: the record itself was found. `next`: it was not copied, the first copied record behind it was
    found. `end`: it was not copied, and no record behind it yet. `no_record`: no record is as late as the
    timestamp. `replayed`: salvage replayed it; the other offset is None where it was not found in time.
    """

    EXACT = "exact"
    NEXT = "next"
    END = "end"
    NOT_YET = "not_yet"
    UNMAPPED = "unmapped"
    NO_RECORD = "no_record"
    REPLAYED = "replayed"


class LocatedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a record at one side, `topic`-`partition` at `offset`, and its offset at the other side."""

    flow: str
    reverse: bool
    cluster: str
    topic: str
    partition: int
    offset: int | None
    timestamp_ms: int | None
    other_cluster: str
    other_topic: str
    found: LocateResult
    other_offset: int | None = None
    replicated_through: int | None = None
    low: int | None = None
