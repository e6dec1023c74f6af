"""Defines the status that a job reports, in the status topic and over its metrics.

It holds facts with their time, no judgement. Status for people is computed from offsets and the ledger; this
adds what only the job knows (states, rates). A reader ignores unknown fields, so that an older version still
reads a newer job.
"""

from enum import StrEnum

import msgspec

from runtime.contract.records import record_values
from runtime.contract.records.record_values import UnreadableValue

VERSION = 1


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
    UNSUPPORTED_VERSION = "unsupported_version"
    UNSCHEDULED = "unscheduled"
    PROMOTED = "promoted"
    FAILED_OVER = "failed_over"

    @property
    def needs_someone(self) -> bool:
        """Returns whether the partition continues only when the topology or an operator says how."""
        return self in _NEEDS_SOMEONE

    @property
    def over_loss(self) -> bool:
        """Returns whether the partition stopped over lost records: it continues once an operator accepts
        that.
        """
        return self in _OVER_LOSS


_NEEDS_SOMEONE = frozenset(
    {
        PartitionState.RECORD_TOO_LARGE,
        PartitionState.RECORD_REFUSED,
        PartitionState.RECORD_CORRUPT,
        PartitionState.RECORD_INVALID,
        PartitionState.DATA_LOSS,
        PartitionState.RECREATED,
        PartitionState.DIVERGED,
        PartitionState.LEDGER_MISSING,
        PartitionState.SOURCE_DELETED,
        PartitionState.UNSUPPORTED_VERSION,
    }
)
_OVER_LOSS = frozenset({PartitionState.DATA_LOSS, PartitionState.RECREATED, PartitionState.DIVERGED})


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
    """Reports one partition of a flow, by its name at the source. Times are ms since 1970, 0 where there is
    none.

    `position`: every source offset below it is replicated (committed). `source_end` is the newest known last
    stable offset: a read_committed reader can read up to it. `last_fetch_ms`: the source last answered for
    the partition, also when it had no new records. `foreign_writes` says that other producers write to the
    destination's partition. `records`, `bytes`, `dropped`, `quarantined` and `lost` (source offsets given up
    on purpose) are the ledger's, since the flow began; `transactions` and `aborts` are this slot's.
    `blocked_by` is set in the state `blocked_at_source`.
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


class FlowStats(msgspec.Struct, frozen=True, omit_defaults=True):
    """Holds totals of one flow in one slot since the slot began.

    `latency_counts` counts records per bound of `LATENCY_BOUNDS_MS`, from a record's timestamp to its commit,
    with one more count for slower records.
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


LATENCY_BOUNDS_MS = (2, 5, 10, 15, 20, 30, 40, 60, 80, 120, 200, 400, 800, 2_000, 5_000, 30_000, 120_000)


class SlotStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """Reports a slot's state, flows and partitions.

    `assignment` is the newest version of which the slot has released every partition that the version
    removes.
    """

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
