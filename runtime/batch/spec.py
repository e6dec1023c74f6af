"""This module defines the input and output of the rewriting of a partition's batches."""

from enum import Flag, auto
from typing import Final, NamedTuple

from msgspec import Struct

from runtime.batch.failure import BatchFailure
from runtime.batch.layout import Batch, Codec
from runtime.contract.records.provenance import ClusterPartition, ClusterTopic
from runtime.contract.spec.launch import LaunchSpec
from runtime.contract.spec.naming import TopicPartition

MAX_UNPACKED: Final = LaunchSpec().unpacked_bytes  # of a batch that a slot of the usual memory rewrites
READ_UNPACKED: Final = 256 << 20  # of a batch that is only read, or restored: no job has unpacked it
LEAST_RECORD: Final = 100  # bytes that a record counts as at least, for each takes memory of its own (R8)
NO_END: Final = (1 << 63) - 1


class Merge(Struct, frozen=True):
    """Says which batches are worth joining: a broker accepts one batch per partition and request.

    Joining costs some microseconds per record, a separate request some hundred microseconds.
    """

    records: int = 64  # a batch of at most this many records
    size: int = 16 * 1024  # and at most this many bytes is joined with its neighbours
    up_to: int = 512 * 1024  # into one of about this size


class QuarantineLimit(NamedTuple):
    """The flow whose bad records go to a quarantine topic, and that topic's max.message.bytes."""

    flow: str
    max_batch: int


class RewriteSpec(Struct, frozen=True):
    where: TopicPartition  # at the source
    max_batch: int  # the destination topic's max.message.bytes
    start: int = 0  # source offsets below it were copied before
    codec: Codec | None = None  # of rewritten batches; None: as they came
    provenance: ClusterPartition | None = None  # add the header: this is where the records are read from
    home: ClusterTopic | None = None  # drop records that originate there
    native_only: bool = False  # drop records that originate elsewhere than where they are read
    merge: Merge | None = None
    max_unpacked: int = MAX_UNPACKED  # bytes of a batch's records (R8)
    end: int = NO_END  # source offsets from it on are not wanted
    quarantine: QuarantineLimit | None = None  # bad records of a transform go there


class RewriteReason(Flag):
    """This is the reason why a batch can't be sent unchanged."""

    NONE = 0
    START = auto()  # the first wanted offset, or the first unwanted offset, is inside
    HOLES = auto()  # compaction removed records: brokers refuse a count other than last offset delta + 1
    APPEND_TIME = auto()  # the broker's time is in the header only, and the destination would clear the bit
    RECORDS = auto()  # provenance reads every record or adds to it
    TOO_LARGE = auto()  # for the destination's limit
    FORMAT = auto()  # v0 or v1
    MERGE = auto()  # small, with small neighbours
    TRANSFORM = auto()  # the flow's transform filters or changes records
    SCHEMA = auto()  # the ids of schemas are others at the destination, or a record waits for its schema


class OffsetDeltaRun(NamedTuple):
    """Outgoing deltas delta … delta + records - 1 are source offsets source … source + records - 1 (R6)."""

    delta: int
    source: int
    records: int


class OutgoingBatch(NamedTuple):
    """An OutgoingBatch is a batch for one produce request, before it is stamped."""

    batch: Batch
    runs: tuple[OffsetDeltaRun, ...]
    position: int  # the source offset to continue from once it is written, at most the end of the spec
    reason: RewriteReason
    epoch: int = -1  # the leader epoch at the source of the record before the position (-1: not known)
    tombstones: int = 0  # records that the flow's transform filtered, and that are copied as tombstones

    @classmethod
    def whole(cls, batch: Batch, reason: RewriteReason) -> "OutgoingBatch":
        """Returns a batch of which each record keeps its offset delta."""
        runs = (OffsetDeltaRun(0, batch.base_offset, batch.records),)
        return cls(batch, runs, batch.next_offset, reason, batch.leader_epoch)


class DroppedRecords(NamedTuple):
    """Counts the records before the source offset `end`, since the entry before, that are not copied."""

    end: int
    records: int


class PreparedBatches(NamedTuple):
    outgoing: list[OutgoingBatch]
    # the source offset to continue from once all is written: past markers, aborted and dropped records
    position: int
    dropped: list[DroppedRecords]  # by provenance, in the order of their offsets
    failure: BatchFailure | None  # at `position`: everything before it is in `outgoing`
