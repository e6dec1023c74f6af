"""A partition with progress, and batches for its queue."""

from runtime.batch import Batch, OutgoingBatch, RewriteReason
from runtime.batch.spec import OffsetDeltaRun
from runtime.contract.records.advance import first_progress
from runtime.contract.records.control import AssignedPartition
from runtime.kafka.records import InternalRecord, build
from runtime.slot.budget import ByteBudget, ResponseMemory
from runtime.slot.partition import PartitionCopy, QueuedBatch


def partition(number: int = 0, *, shared: bool = False, topic: str = "orders") -> PartitionCopy:
    """Copied up to source offset 10, which is the destination's offset 100."""
    progress = first_progress(
        generation=1,
        source_topic_id=b"s" * 16,
        destination_topic="orders",
        destination_topic_id=b"d" * 16,
        position=10,
        destination_end=100,
        now_ms=1,
    )
    return PartitionCopy(AssignedPartition("flow", topic, number, "orders"), progress, shared=shared)


def outgoing(first: int, *records: tuple[int, int], epoch: int = -1) -> OutgoingBatch:
    """Records as (source offset, how many from there on)."""
    count = sum(many for _, many in records)
    batch: Batch = build([InternalRecord(b"k", b"v")] * count, 50 + first)
    runs, delta = [], 0
    for source, many in records:
        runs.append(OffsetDeltaRun(delta, source, many))
        delta += many
    last = records[-1]
    return OutgoingBatch(batch, tuple(runs), last[0] + last[1], RewriteReason.NONE, epoch)


def queued(
    *records: tuple[int, int], first: int = 0, epoch: int = -1, held: ResponseMemory | None = None
) -> QueuedBatch:
    """Such a batch in a queue; it holds no memory, or that of a response."""
    held = ResponseMemory(ByteBudget(1), 0) if held is None else held.view()
    return QueuedBatch(outgoing(first, *records, epoch=epoch), held)
