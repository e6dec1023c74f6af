"""Bad records in a transaction: which ones it writes, and which partitions a failure blames."""

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from runtime.batch import Codec, QuarantineLimit, Record, RewriteSpec, prepare, records
from runtime.batch.selection import QuarantinedRecord, quarantine_batches, quarantined, unpacked
from runtime.contract.records.control import LimitedTopic
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.metadata import Partition
from runtime.kafka.protocol.produce import ProducedPartition, ProduceRequest, ProduceResponse
from runtime.kafka.protocol.transactions import AddPartitionsRequest, ProducerIdentity
from runtime.slot.budget import ByteBudget, ResponseMemory
from runtime.slot.errors import ErrorAction, decide
from runtime.slot.partition import Cursor, PartitionCopy, QueuedQuarantine
from runtime.slot.write.flow_ledger import write_quarantined
from runtime.slot.write.sender import ProduceSender
from runtime.slot.write.transaction import Transaction, TransactionFailure
from tests.fakes.lane import Destination
from tests.fakes.partition import partition
from tests.runtime.batch.forge import HERE, batch_bytes, sets

TOPIC = "orders.quarantine"
LIMIT = LimitedTopic(TOPIC, 2_000)


class Quarantine(Destination):
    """A destination with one quarantine topic; `written` are the offsets at the source, by partition."""

    def __init__(self, partitions: int = 2, error: ErrorCode = ErrorCode.NONE) -> None:
        super().__init__()
        self.partitions = {number: self.leader(TOPIC, number) for number in range(partitions)}
        self.error = error
        self.refused: dict[tuple[str, int], ErrorCode] = {}
        self.produce_error = ErrorCode.NONE
        self.answers, self.received = True, asyncio.Event()
        self.asked: list[tuple[str, int]] = []
        self.written: dict[int, list[int]] = {}
        self.doubted: list[str] = []

    async def topics(self, names: Iterable[str], fresh: bool = False) -> Any:
        return {name: SimpleNamespace(error=self.error, partitions=self.partitions) for name in names}

    def doubt(self, topic: str) -> None:
        self.doubted.append(topic)

    async def call(self, node: int, request: object, purpose: str, within: float | None = None) -> object:
        match request:
            case AddPartitionsRequest(partitions=wanted):
                self.asked += [(topic, number) for topic, number in wanted]
                return dict(self.refused)
            case ProduceRequest(partitions=[part]):
                self.received.set()
                if not self.answers:
                    await asyncio.Event().wait()
                return ProduceResponse(
                    0, (ProducedPartition(part.topic, part.partition, self.produce_error, 5, -1, 0),)
                )
        return await super().call(node, request, purpose, within)


def bad(offset: int, size: int = 10) -> QuarantinedRecord:
    spec = RewriteSpec(HERE, 1 << 20, quarantine=QuarantineLimit("flow", 1 << 20))
    one = Record(offset, 1, b"k", b"v" * size, (("h", None),))
    prepared = prepare(sets(batch_bytes([one])), RewriteSpec(HERE, 1 << 20), 1)
    (unpacked_record,) = unpacked(prepared.outgoing[0], spec)
    return quarantined(unpacked_record, "why", Codec.NONE, spec, 2)


def holding(*offsets: int, number: int = 0, position: int | None = None, size: int = 10) -> PartitionCopy:
    """A partition at 10 whose cursor lies behind these bad records."""
    copy = partition(number)
    copy.assigned = replace(copy.assigned, quarantine=LIMIT)
    held = ResponseMemory(ByteBudget(1 << 20), 0)
    queued = [QueuedQuarantine(bad(offset, size), held.view()) for offset in offsets]
    copy.fetched([], Cursor(position or offsets[-1] + 1, 1), (), queued)
    return copy


def committing(*copies: PartitionCopy) -> Transaction:
    tx = Transaction(0.0)
    tx.prepare_entries(list(copies), 1, 0)
    return tx


def write(destination: Quarantine, tx: Transaction) -> None:
    async def work() -> None:
        sender = ProduceSender(cast(KafkaCluster, destination), "lane", 1 << 20, lambda: None)
        sender.begin_epoch(ProducerIdentity(7, 0))
        await write_quarantined(cast(KafkaCluster, destination), tx, sender, "lane")

    asyncio.run(asyncio.wait_for(work(), 60))


def test_a_transaction_passes_the_bad_records_before_its_position_alone() -> None:
    copy = holding(10, 12, 15, position=13)
    assert [one.offset for one in copy.quarantined_before(13)] == [10, 12]
    tx = committing(copy)
    (entry,) = tx.entries
    assert entry.step is not None
    assert entry.step.quarantined == 2
    entry.apply()
    assert (copy.progress.position, copy.progress.quarantined) == (13, 2)
    assert [one.record.offset for one in copy.quarantine] == [15]
    assert copy.queued_bytes == copy.quarantine[0].record.size


def test_a_rewind_gives_back_what_is_fetched_again() -> None:
    copy = holding(10, 12)
    copy.rewind()
    assert (list(copy.quarantine), copy.queued_bytes) == ([], 0)


def test_partitions_that_the_quarantine_lacks_share_those_that_there_are() -> None:
    destination = Quarantine(partitions=2)
    write(destination, committing(holding(10), holding(11, number=3)))
    assert destination.asked == [(TOPIC, 0), (TOPIC, 1)]


@pytest.mark.parametrize(
    ("change", "action", "what"),
    [
        ({"error": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, ErrorAction.SUSPECT, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"no leader": True}, ErrorAction.SUSPECT, "LEADER_NOT_AVAILABLE"),
        ({"too few in sync": True}, ErrorAction.SUSPECT, "NOT_ENOUGH_REPLICAS"),
        (
            {"refused": ErrorCode.TOPIC_AUTHORIZATION_FAILED},
            ErrorAction.SUSPECT,
            "TOPIC_AUTHORIZATION_FAILED",
        ),
        ({"produce": ErrorCode.MESSAGE_TOO_LARGE}, ErrorAction.STOP, "MESSAGE_TOO_LARGE"),
        ({"size": 4_000}, ErrorAction.STOP, "the record takes 4"),
        ({"produce": ErrorCode.INVALID_PRODUCER_EPOCH}, ErrorAction.END_SLOT, "INVALID_PRODUCER_EPOCH"),
    ],
)
def test_a_failure_blames_the_partition_whose_records_cannot_be_written(
    change: dict[str, Any], action: ErrorAction, what: str
) -> None:
    destination = Quarantine(error=change.get("error", ErrorCode.NONE))
    copy, other = holding(10, size=change.get("size", 10)), partition(1)
    other.fetched([], Cursor(25, 1), ())
    if "no leader" in change:
        destination.partitions[0] = Partition(0, -1, 5, (), ())
    if "too few in sync" in change:
        copy.assigned = replace(copy.assigned, quarantine=LimitedTopic(TOPIC, 2_000, min_in_sync=2))
    if "refused" in change:
        destination.refused = {(TOPIC, 0): change["refused"]}
    destination.produce_error = change.get("produce", ErrorCode.NONE)
    with pytest.raises(TransactionFailure) as raised:
        write(destination, committing(copy, other))
    assert raised.value.copies == (copy,)
    assert what in str(raised.value)
    assert decide(raised.value.phase, raised.value.error).action is action


@pytest.mark.parametrize(("answers", "late"), [(False, {TopicPartition(TOPIC, 0)}), (True, set())])
def test_a_request_without_an_answer_is_late_also_if_the_transaction_runs_out_of_time(
    answers: bool, late: set[TopicPartition]
) -> None:
    """The time limit of the lane cancels the task; `late` gets abort markers of a new epoch (fencing 1)."""

    async def work() -> set[TopicPartition]:
        destination = Quarantine()
        destination.answers = answers
        cluster = cast(KafkaCluster, destination)
        sender = ProduceSender(cluster, "lane", 1 << 20, lambda: None)
        sender.begin_epoch(ProducerIdentity(7, 0))
        writing = asyncio.create_task(write_quarantined(cluster, committing(holding(10)), sender, "lane"))
        await destination.received.wait()
        if not answers:
            writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        assert writing.cancelled() is not answers
        return sender.late

    assert asyncio.run(asyncio.wait_for(work(), 60)) == late


def test_what_is_written_has_the_record_as_it_came() -> None:
    (batch,) = quarantine_batches([bad(10), bad(11)], 1 << 20, HERE)
    for offset, one in zip((10, 11), records(batch, HERE), strict=True):
        assert (one.key, one.value, one.timestamp, one.headers[0]) == (b"k", b"v" * 10, 2, ("h", None))
        assert dict(one.headers[1:]) == {
            "repl.reason": b"why",
            "repl.flow": b"flow",
            "repl.topic": HERE.topic.encode(),
            "repl.partition": b"%d" % HERE.partition,
            "repl.offset": b"%d" % offset,
            "repl.timestamp": b"1",
        }
