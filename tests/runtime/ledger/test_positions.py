"""Flows share a ledger partition, each with its own progress (R7); where one starts, and what it leaves."""

import time
from typing import Any, cast

import pytest
from msgspec.structs import replace

from runtime.contract.records.control import AssignedPartition
from runtime.contract.records.failback import failback_start
from runtime.contract.records.group_records import GroupPartition
from runtime.contract.records.ledger import (
    Generation,
    GenerationKey,
    LedgerKey,
    LedgerValue,
    PartitionKey,
    Progress,
    ProgressKey,
    UnreadableRecord,
    encode_key,
    encode_value,
)
from runtime.contract.spec import naming
from runtime.contract.spec.flow import AtOffsets, AtTimestamp, Earliest, Latest, Start
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode
from runtime.kafka.records import InternalRecord
from runtime.ledger.consumer_times import LookupRetries
from runtime.ledger.ledger import Ledger
from runtime.ledger.positions import (
    FlowNotEnded,
    commit_first_positions,
    first_positions,
    leave_orphans,
    names,
    orphans_transactional_id,
    resolve_start,
)
from runtime.ledger.transaction_writer import TransactionWriter
from tests.fakes.internal_topics import InternalTopics, TransactionalTopics, stored
from tests.fakes.progress import map_of, progress


class WrittenLedger:
    """A ledger whose records a test writes, each with what its reader says then of the progress of flows."""

    def __init__(self) -> None:
        self._topics = InternalTopics({naming.LEDGER: []})

    async def write(self, flow: str, value: bytes | None) -> Ledger:
        key = ProgressKey(PartitionKey(flow, "t", 0))
        self._topics.grow(naming.LEDGER, InternalRecord(encode_key(key), value))
        ledger = await Ledger.open(cast("KafkaCluster", self._topics))
        await ledger.refresh_all(["one", "two"])
        return ledger


def at(flow: str, position: int) -> dict[PartitionKey, Progress]:
    return {PartitionKey(flow, "t", 0): progress(position)}


async def test_a_flow_has_its_own_progress_and_the_newest():
    written = WrittenLedger()
    for flow, position in (("one", 1), ("two", 2), ("one", 3)):
        ledger = await written.write(flow, encode_value(progress(position)))
    assert (ledger.all_progress("one"), ledger.all_progress("two")) == (at("one", 3), at("two", 2))
    ledger = await written.write("one", None)
    assert (ledger.all_progress("one"), ledger.all_progress("two")) == ({}, at("two", 2))


async def test_a_record_that_cannot_be_read_stops_its_own_flow_until_it_is_replaced():
    written = WrittenLedger()
    await written.write("two", encode_value(progress(2)))
    ledger = await written.write("one", b"\x01garbage")
    assert ledger.all_progress("two") == at("two", 2)
    with pytest.raises(UnreadableRecord):
        ledger.all_progress("one")
    ledger = await written.write("one", encode_value(progress(1)))
    assert ledger.all_progress("one") == at("one", 1)


# Where a flow starts

RECORD = InternalRecord(b"k", b"v")
ORDERS, PAY = TopicPartition("orders", 0), TopicPartition("pay", 0)
OFFSETS = AtOffsets(offsets={"orders": {1: 42}})


@pytest.mark.parametrize(
    ("start", "topic", "partition", "named"),
    [
        *((start, "orders", 0, True) for start in (Earliest(), Latest(), AtTimestamp(timestamp_ms=1))),
        (OFFSETS, "orders", 1, True),
        (OFFSETS, "orders", 0, False),
        (OFFSETS, "payments", 1, False),
    ],
)
def test_start_rules_name_every_partition_and_offsets_their_own(
    start: Start, topic: str, partition: int, named: bool
) -> None:
    assert names(start, TopicPartition(topic, partition)) is named


@pytest.mark.parametrize(
    ("start", "orders", "pay"),
    [
        (Earliest(), 5, 2),
        (Latest(), 100, 7),
        (AtTimestamp(timestamp_ms=40), 40, 7),  # behind the last record of pay
        (AtOffsets(offsets={"orders": {0: 42}}), 42, 2),
    ],
)
async def test_each_partition_starts_where_the_rule_says(start: Start, orders: int, pay: int) -> None:
    source: Any = InternalTopics({"orders": [RECORD] * 100, "pay": [RECORD] * 7})
    source.starts = {"orders": 5, "pay": 2}
    assert await resolve_start(source, [ORDERS, PAY], start) == {ORDERS: orders, PAY: pay}


async def test_first_positions_are_committed_once_and_later_partitions_start_at_0() -> None:
    source: Any = InternalTopics({topic: [RECORD] * 100 for topic in ("orders", "later")})
    there: Any = TransactionalTopics({naming.LEDGER: [], "orders": [RECORD] * 3, "later": [RECORD] * 4})
    ledger, writer = await Ledger.open(there), await TransactionWriter.open(there, "driver")
    for start, topics, new in ((Latest(), ["orders"], ["orders"]), (None, ["orders", "later"], ["later"])):
        assigned = [AssignedPartition("flow", topic, 0, topic) for topic in topics]
        first = await first_positions(source, there, assigned, start, 1)
        assert [key.topic for key in await commit_first_positions(writer, ledger, first)] == new
    await ledger.refresh("flow")
    found = {key.topic: one for key, one in ledger.all_progress("flow").items()}
    assert {topic: (one.position, one.destination_end) for topic, one in found.items()} == {
        "orders": (100, 3),
        "later": (0, 4),
    }
    assert found["orders"].source_topic_id == source.topic("orders").id


# What a flow leaves behind when it has ended

ENDED = Generation(3, "job", "failed_over", "driver", ["repl.job.0.flow.0"], "id-1", "id-2", 1)
OWN = orphans_transactional_id("flow")


def left_by(generation: Generation | None, *progress: tuple[str, Progress]) -> list[InternalRecord]:
    """The records of the flow's ledger."""
    ended: dict[LedgerKey, LedgerValue] = {} if generation is None else {GenerationKey("flow"): generation}
    return stored(ended | {ProgressKey(PartitionKey("flow", topic, 0)): one for topic, one in progress})


async def test_what_the_source_still_holds_is_orphaned_once_nobody_else_can_copy_it() -> None:
    """Of a topic that is gone or was made anew, nothing is orphaned (R4)."""
    topics = ("orders", "gone", "anew", "never")
    source: Any = InternalTopics({topic: [RECORD] * 25 for topic in topics})
    copied = [(topic, progress(10, source_topic_id=source.topic(topic).id)) for topic in topics[:3]]
    source.gone, source.replaced = {"gone"}, {"anew"}
    there: Any = TransactionalTopics({naming.LEDGER: left_by(ENDED, *copied), "never": [RECORD] * 9})
    there.starts = {"never": 4}

    assigned = [AssignedPartition("flow", topic, 0, topic) for topic in topics]
    await leave_orphans("flow", source, there, "failover", assigned)

    assert there.steps == [OWN, "commit", "repl.job.0.flow.0", "commit"]  # written, then fenced (fencing 3)
    ledger = await Ledger.open(there)
    await ledger.refresh("flow")
    marks = {key.topic: orphans.orphaned for key, orphans in ledger.orphans("flow").items()}
    assert {topic: (low, one.end, one.why) for topic, ((low, one),) in marks.items()} == {
        "orders": (10, 25, "failover"),
        "never": (0, 25, "failover"),
    }
    assert all(abs(one.at_ms / 1000 - time.time()) < 600 for ((_, one),) in marks.values())
    left = {key.topic: one for key, one in ledger.all_progress("flow").items()}
    assert {topic: one.position for topic, one in left.items()} == {
        "orders": 25,
        "gone": 10,
        "anew": 10,
        "never": 25,
    }
    assert left["never"].destination_end == 4
    # A failback takes home all that was written into the mirror of a topic that was never begun.
    first = progress(4, 25, source_topic_id=b"m" * 16, destination_topic_id=source.topic("never").id)
    begun = failback_start(None, left["never"], map_of(left["never"]), first)
    assert begun.progress.position == 4
    taken = ledger.generation("flow")
    assert taken is not None
    assert (taken.number, taken.transactional_ids) == (4, [OWN])


async def test_a_partition_that_does_not_answer_keeps_no_other_from_being_orphaned() -> None:
    source: Any = InternalTopics({topic: [RECORD] * 25 for topic in ("orders", "silent")})
    copied = [(topic, progress(10, source_topic_id=source.topic(topic).id)) for topic in ("orders", "silent")]
    source.unlisted = {"silent"}
    there: Any = TransactionalTopics({naming.LEDGER: left_by(ENDED, *copied)})
    with pytest.raises(BrokerError, match="silent-0"):
        await leave_orphans("flow", source, there, "failback")
    orders = AssignedPartition("flow", "orders", 0, "orders")
    await leave_orphans("flow", source, there, "replay", [orders])
    ledger = await Ledger.open(there)
    await ledger.refresh("flow")
    marks = {key: orphans.orphaned for key, orphans in ledger.orphans("flow").items()}
    assert {key: (low, one.end) for key, ((low, one),) in marks.items()} == {orders.key: (10, 25)}


@pytest.mark.parametrize(
    ("generation", "why"),
    [
        (None, "flow never ran"),
        (replace(ENDED, state="active"), "flow is active"),
        (replace(ENDED, note="2 groups wait"), "flow is failed_over: 2 groups wait"),
    ],
)
async def test_of_a_flow_that_has_not_ended_nothing_is_orphaned(
    generation: Generation | None, why: str
) -> None:
    source: Any = InternalTopics({"orders": [RECORD] * 25})
    there: Any = TransactionalTopics({naming.LEDGER: left_by(generation, ("orders", progress(10)))})
    with pytest.raises(FlowNotEnded, match=why):
        await leave_orphans("flow", source, there, "failover")
    assert there.steps == [OWN]


async def test_a_generation_whose_marker_is_not_written_yet_is_waited_for() -> None:
    there: Any = InternalTopics({naming.LEDGER: left_by(ENDED)}, committing=[naming.LEDGER])
    ledger = await Ledger.open(there)
    await ledger.decided("flow")
    assert ledger.generation("flow") == ENDED


async def test_a_writer_aborts_a_transaction_that_failed_before_it_begins_the_next_one() -> None:
    """Fencing 1: and only then."""
    there: Any = TransactionalTopics({naming.LEDGER: []})
    writer = await TransactionWriter.open(there, "driver")
    await writer.commit({GenerationKey("flow"): ENDED})
    there.refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(BrokerError):
        await writer.commit({GenerationKey("flow"): replace(ENDED, number=4)})
    await writer.commit({GenerationKey("flow"): replace(ENDED, number=5)})
    renewal = ["abort", "driver"]  # The abort between the two fences requests that may still arrive.
    assert there.steps == ["driver", "commit", *renewal, "abort", *renewal, "commit"]
    ledger = await Ledger.open(there)
    await ledger.refresh("flow")
    assert ledger.generation("flow") == replace(ENDED, number=5)


# When a commit is looked up again whose record was not found at the source

GROUP = GroupPartition("billing", "orders", 0)
MINUTE = 60_000


@pytest.mark.parametrize(
    ("expiry_ms", "failures", "now_ms", "due"),
    [
        (None, [], 0, True),
        (None, [0], 5 * MINUTE - 1, False),
        (None, [0], 5 * MINUTE, True),
        (None, [0, 6 * MINUTE], 10 * MINUTE, False),
        (None, [0, 6 * MINUTE], 1_000 * MINUTE, True),
        (8 * MINUTE, [0], 5 * MINUTE, True),
        (8 * MINUTE, [0, 6 * MINUTE], 12 * MINUTE, False),  # 8 minutes after the first time
    ],
)
def test_it_is_due_after_five_minutes_until_it_expires(
    expiry_ms: int | None, failures: list[int], now_ms: int, due: bool
) -> None:
    retries = LookupRetries(None, expiry_ms)
    for at_ms in failures:
        retries.note_failure(GROUP, 7, at_ms)
    assert retries.is_due(GROUP, 7, now_ms) is due


def test_lookups_of_groups_that_are_gone_are_forgotten_and_those_of_unread_groups_are_not() -> None:
    retries, (hidden, gone) = LookupRetries(), (GROUP._replace(group=name) for name in ("hidden", "gone"))
    for item in (GROUP, hidden, gone):
        retries.note_failure(item, 7, 0)
    retries.retain_only({GROUP}, unread={"hidden"})
    assert [retries.is_due(item, 7, 1) for item in (GROUP, hidden, gone)] == [False, False, True]


def test_a_new_commit_starts_anew() -> None:
    retries = LookupRetries(MINUTE, MINUTE)
    retries.note_failure(GROUP, 7, 0)
    assert retries.is_due(GROUP, 8, 1)
    assert retries.is_due(GROUP._replace(group="other"), 7, 1)
    retries.note_failure(GROUP, 8, 10 * MINUTE)
    assert not retries.is_due(GROUP, 8, 10 * MINUTE + 1)
