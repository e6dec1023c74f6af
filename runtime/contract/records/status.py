"""What a job says of itself, in the status topic and over its metrics: facts with their time, no judgement.

Status for people is computed from offsets and the ledger; this adds what only the job knows (states, rates).
A reader ignores fields it does not know, so that an older tool still reads a newer job.
"""

from enum import StrEnum

import msgspec

from runtime.contract.records import record_values
from runtime.contract.records.record_values import UnreadableValue

VERSION = 1


class PartitionState(StrEnum):
    STARTING = "starting"
    COPYING = "copying"
    CAUGHT_UP = "caught_up"
    PAUSED = "paused"
    RETRYING = "retrying"
    BLOCKED_AT_SOURCE = "blocked_at_source"
    RECORD_TOO_LARGE = "record_too_large"
    RECORD_REFUSED = "record_refused"
    RECORD_CORRUPT = "record_corrupt"
    DATA_LOSS = "data_loss"
    RECREATED = "recreated"
    DIVERGED = "diverged"
    LEDGER_MISSING = "ledger_missing"
    SOURCE_DELETED = "source_deleted"
    UNSCHEDULED = "unscheduled"
    PROMOTED = "promoted"
    FAILED_OVER = "failed_over"

    @property
    def needs_someone(self) -> bool:
        """Whether it goes on only when the topology or an operator says how."""
        return self in _NEEDS_SOMEONE

    @property
    def over_loss(self) -> bool:
        """Whether it stands still over records that are lost: it goes on once somebody accepts that."""
        return self in _OVER_LOSS


_NEEDS_SOMEONE = frozenset(
    {
        PartitionState.RECORD_TOO_LARGE,
        PartitionState.RECORD_REFUSED,
        PartitionState.RECORD_CORRUPT,
        PartitionState.DATA_LOSS,
        PartitionState.RECREATED,
        PartitionState.DIVERGED,
        PartitionState.LEDGER_MISSING,
        PartitionState.SOURCE_DELETED,
    }
)
_OVER_LOSS = frozenset({PartitionState.DATA_LOSS, PartitionState.RECREATED, PartitionState.DIVERGED})


class OpenTransaction(msgspec.Struct, frozen=True, omit_defaults=True):
    """A transaction at the source that holds back a partition's readers, from `start_offset` on.

    `transactional_id`, `coordinator_state` (Kafka's word: Ongoing, …), `started_ms` and `timeout_ms` are
    empty or 0 where they are not known; `unknown` says why, and which right is missing. `abort_command` ends
    it.
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
    """One partition of a flow, by its name at the source. Times are ms since 1970, 0 where it never was.

    `position` is replicated through (committed). `source_end` is the last stable offset last seen: what a
    reader there may have. `last_fetch_ms`: the source last answered for the partition, also that it has
    nothing new. `foreign_writes` says that others write to the destination's partition. `records`,
    `bytes`, `dropped` and `lost` (source offsets given up on purpose) are the ledger's, since the flow began;
    `transactions` and `aborts` are this slot's. `blocked_by` is there in the state `blocked_at_source`.
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


class FlowStats(msgspec.Struct, frozen=True, omit_defaults=True):
    """Totals since the slot began, of one flow in one slot. `latency_counts` are per bound of
    `LATENCY_BOUNDS_MS`, from a record's timestamp to its commit, with one more for what is slower.
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


LATENCY_BOUNDS_MS = (2, 5, 10, 15, 20, 30, 40, 60, 80, 120, 200, 400, 800, 2_000, 5_000, 30_000, 120_000)


class SlotStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """`assignment` is the newest version of which everything that it takes away is let go."""

    slot: int
    at_ms: int
    assignment: int
    process: int = 0
    host: str = ""
    rss_bytes: int = 0
    buffered_bytes: int = 0
    flows: list[FlowStats] = []
    partitions: list[PartitionStatus] = []


def encode(status: SlotStatus) -> bytes:
    return b"\x01" + msgspec.json.encode(status)


def decode(value: bytes) -> SlotStatus:
    if value[:1] != b"\x01":
        raise UnreadableValue(f"status of version {value[:1].hex() or 'none'}, this runtime reads 01")
    return record_values.decode(_status, value[1:])


_status = msgspec.json.Decoder(SlotStatus)
