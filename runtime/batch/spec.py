"""What the copy of a partition needs of its batches, and what comes of them."""

from dataclasses import dataclass
from enum import Flag, auto
from typing import Final, NamedTuple

from runtime.batch.failure import BatchFailure, PartitionLocation
from runtime.batch.layout import Batch, Codec
from runtime.contract.records.provenance import ClusterPartition, ClusterTopic

MAX_UNPACKED: Final = 256 * 1024 * 1024
NO_END: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Merge:
    """Which batches are worth joining: a broker takes one batch per partition and request.

    Joining costs some microseconds per record, a request of its own some hundred of them.
    """

    records: int = 64  # a batch of at most so many records
    size: int = 16 * 1024  # and at most so many bytes is joined with its neighbours
    up_to: int = 512 * 1024  # into one of about this size


@dataclass(frozen=True, slots=True)
class RewriteSpec:
    where: PartitionLocation  # at the source
    max_batch: int  # the destination topic's max.message.bytes
    start: int = 0  # source offsets below it were copied before
    codec: Codec | None = None  # of rewritten batches; None: as they came
    provenance: ClusterPartition | None = None  # add the header: this is where the records are read from
    home: ClusterTopic | None = None  # drop records that were born there
    native_only: bool = False  # drop records that were born elsewhere than where they are read
    merge: Merge | None = None
    max_unpacked: int = MAX_UNPACKED  # R8
    end: int = NO_END  # source offsets from it on are not wanted


class RewriteReason(Flag):
    """Why a batch can't go out as it came."""

    NONE = 0
    START = auto()  # the first wanted offset, or the first that is not wanted any more, is inside
    HOLES = auto()  # compaction took records: brokers refuse a count other than last offset delta + 1
    APPEND_TIME = (
        auto()
    )  # the broker's time stands in the header alone, and the destination would clear the bit
    RECORDS = auto()  # provenance looks at or adds to every record
    TOO_LARGE = auto()  # for the destination's limit
    FORMAT = auto()  # v0 or v1
    MERGE = auto()  # small, with small neighbours


class OffsetDeltaRun(NamedTuple):
    """Outgoing deltas delta … delta + records - 1 are source offsets source … source + records - 1 (R6)."""

    delta: int
    source: int
    records: int


class OutgoingBatch(NamedTuple):
    """A batch for one produce request, to be stamped."""

    batch: Batch
    segments: tuple[OffsetDeltaRun, ...]
    position: int  # the source offset to go on from once it is in
    reason: RewriteReason


class PreparedBatches(NamedTuple):
    outgoing: list[OutgoingBatch]
    position: int  # the source offset to go on from once all is in: past markers, aborted and dropped records
    dropped: int  # records that provenance kept back
    failure: BatchFailure | None  # at `position`: what lies before it is in `outgoing`
