"""Offsets: `repl locate`, the positions of a predecessor, clients of a topic, and groups that read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.audit.ledger import AuditFailure, FlowAccess, as_audit_failure
from runtime.audit.offsets.locate import not_copied
from runtime.audit.offsets.unread import moved_by_consumers
from runtime.audit.partition_logs import CommittedRecordReader, OpenTransactionTimeout, fetch_places
from runtime.audit.predecessor.alignment import TailSearch
from runtime.audit.predecessor.progress import next_offsets
from runtime.audit.read.clients import ClientFacts
from runtime.audit.read.records import Start, records_from
from runtime.batch import CorruptBatch
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.records.group_records import Checkpoint, CheckpointState, GroupPartition
from runtime.contract.records.ledger import PartitionKey, UnreadableRecord
from runtime.contract.records.offset_map import OffsetMap, Run, Span, encode_runs
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.results.groups import LocatedRecord
from runtime.contract.results.records import TopicClients
from runtime.contract.spec.flow import Earliest, Latest
from runtime.contract.spec.naming import TopicPartition
from runtime.contract.spec.route import Router
from runtime.kafka.errors import AuthenticationFailed, BrokerError, Disconnected, ErrorCode
from runtime.kafka.protocol.fetch import FetchResponse
from runtime.kafka.protocol.groups import GroupState, MemberState
from runtime.kafka.protocol.metadata import NO_LEADER
from runtime.kafka.protocol.transactions import ActiveProducer
from runtime.slot.budget import TokenBucket
from tests.fakes.clock import jumping
from tests.fakes.one_broker import AT, END, GONE, ID, LONG_S, PATIENCE_S, OneBroker, answered
from tests.fakes.partition_logs import PartitionLog, PartitionLogs
from tests.fakes.progress import progress
from tests.fakes.verification import fetched
from tests.runtime.batch.forge import batch_bytes, record

ORDERS = [TopicPartition("orders", number) for number in range(2)]
BROKERS: Any = PartitionLogs(
    {
        ORDERS[0]: PartitionLog([batch_bytes([record(5), record(6), record(7)])], start=5),
        ORDERS[1]: PartitionLog([batch_bytes([record(0)])], leader=NO_LEADER),
    },
    {"orders": ID},
)


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (Disconnected("dc1:9092", "refused", sent=False), "is dc1 up, and is its bootstrap right?"),
        (BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic t"), "its principal needs more rights"),
        (BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, "topic orders"), "run this again"),
        (AuthenticationFailed("dc1:9092", "unknown user"), "mend clusters.dc1.client"),
        (ClientSettingsError("sasl.mechanism", "is none"), "mend clusters.dc1.client"),
        (UnreadableRecord("a value of version 9"), "ask with the version of repl that its jobs run"),
        (CorruptBatch(ORDERS[0], 7, "wrong checksum"), "another replica of orders-0 may be whole"),
    ],
)
def test_each_failure_has_its_own_hint(error: Exception, hint: str) -> None:
    with pytest.raises(AuditFailure) as failure, as_audit_failure("dc1"):
        raise error
    assert str(failure.value) == f"dc1: {error}"
    assert failure.value.hint.startswith(hint)


@pytest.mark.parametrize(
    ("topic", "partition", "reverse", "why", "hint"),
    [
        ("orders", 7, False, "f copied no orders-7", "orders has other partitions"),
        ("other", 0, False, "f copied no other-0", "it copied from orders"),
        ("other", 0, True, "", "it copied into dc1.orders"),
        ("dc1.orders", 0, False, "", "a topic's name at dc2: add --reverse to ask about a record there"),
        ("orders", 0, True, "", "a topic's name at dc1: leave --reverse out to ask about a record there"),
        (None, 0, False, "f copied nothing yet", "repl status shows how far it is"),
    ],
)
def test_a_record_of_a_partition_that_was_never_copied(
    topic: str | None, partition: int, reverse: bool, why: str, hint: str
) -> None:
    sides = ClusterEndpoint("dc1", "a:1"), ClusterEndpoint("dc2", "b:1")
    copied = {PartitionKey("f", "orders", 0): progress(destination_topic="dc1.orders")} if topic else {}
    record = LocatedRecord(
        flow="f",
        reverse=reverse,
        cluster="dc1",
        topic=topic or "orders",
        partition=partition,
        offset=5,
        other_cluster="dc2",
    )
    failure = not_copied(FlowAccess("f", Router([]), *sides), record, copied)
    assert why in failure.why
    assert hint in failure.hint
    assert failure.cluster == ("dc2" if not reverse else failure.cluster)


def test_records_copied_before_an_offset_end_at_the_destination() -> None:
    """Source offsets 10…14 at 100…104, and 20…24 at 110…114 in the next span."""
    first = Span(10, 18, 100, 105, encode_runs([Run(10, 100, 5)], 10, 100))
    offsets = OffsetMap([first, Span(18, 30, 105, 115, encode_runs([Run(20, 110, 5)], 18, 105))])
    ends = {5: 100, 10: 100, 12: 102, 15: 105, 18: 105, 20: 105, 22: 112, 25: 115, 99: 115}
    assert {at: offsets.destination_behind(at) for at in ends} == ends


# The predecessor's positions: records of Connect's offsets topic, and the end of its mirror


def key(partition: int = 0, cluster: str = "A") -> bytes:
    place = {"cluster": cluster, "partition": partition, "topic": "orders"}
    return json.dumps(["C", place], separators=(",", ":")).encode()


BY_HAND = b'["C",{"topic":"orders","partition":0,"cluster":"A"}]'
SEVEN = b'{"offset":7}'


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        # The last copied record is stored, and the next one is copied.
        ([(key(), b'{"offset":41}'), (key(1), b'{"offset":0}')], {ORDERS[0]: 42, ORDERS[1]: 1}),
        ([(key(), b'{"offset":-1}')], {}),
        # Connect reads its own key and not one with its parts in another order.
        ([(key(), b'{"offset":1}'), (BY_HAND, b'{"offset":9}')], {ORDERS[0]: 2}),
        ([(BY_HAND, b'{"offset":9}')], {ORDERS[0]: 10}),
        ([(key(cluster="C"), SEVEN)], {}),
        ([(b'["MirrorHeartbeatConnector",{"sourceClusterAlias":"A","targetClusterAlias":"B"}]', SEVEN)], {}),
        ([(b'["MirrorCheckpointConnector",{"group":"g","partition":0,"topic":"orders"}]', SEVEN)], {}),
        ([(b'["file-source",{"filename":"x"}]', SEVEN)], {}),
        ([(b'["C",{"cluster":"A","partition":"0","topic":"orders"}]', SEVEN)], {}),
        ([(b"no json", SEVEN), (b"[[[", SEVEN), (b"\xff", SEVEN)], {}),
    ],
)
def test_offsets_of_connect_are_the_next_to_copy(
    records: list[tuple[bytes, bytes]], expected: dict[TopicPartition, int]
) -> None:
    assert next_offsets(records, "A") == expected


@pytest.mark.parametrize("value", [b"{}", b'{"offset":"7"}', b'{"offset":true}', b"7", b"no json"])
def test_a_value_that_is_no_offset_is_an_error_that_names_the_partition(value: bytes) -> None:
    with pytest.raises(UnreadableValue, match="orders-0"):
        next_offsets([(key(), value)], "A")


def log(values: Iterable[str], start: int = 0) -> list[ConsumerRecord]:
    return [fetched(start + at, value.encode()) for at, value in enumerate(values)]


def searched(source: list[ConsumerRecord], tail: list[ConsumerRecord], stored: int) -> int | None:
    """In two parts, as fetches give them."""
    search = TailSearch(tail, stored)
    search.read(source[:3])
    search.read(source[3:])
    return search.result()


@pytest.mark.parametrize(
    ("source", "mirror", "stored", "next_offset"),
    [
        ("abcdef", "abc", 3, 3),  # stopped cleanly
        ("abcdef", "abcde", 3, 5),  # killed after it had copied more than it stored
        ("abcdef", "ab", 3, 2),  # the mirror has lost its end
        ("abcdef", "abcdef", 0, 6),  # killed before it stored anything
        ("abcdef", "xyz", 3, None),  # another producer
        ("abcabc", "abc", 3, 3),  # the same records again: the stored position comes first
        ("abcdabcdabcd", "abcdabcd", 6, 8),  # the first place behind it
        ("abcabxabc", "aabx", 3, 6),  # the last record alone, where it is unique
        ("axbxcx", "ddx", 1, None),  # the last record alone, and it is not unique
        ("axbxcx", "ddx", 4, 4),  # unless it is the one at the stored position
        ("", "abc", 0, None),
        ("abc", "abc", 7, 7),  # the gap before the position is of markers or deleted records
    ],
)
def test_the_next_offset_after_the_end_of_a_mirror(
    source: str, mirror: str, stored: int, next_offset: int | None
) -> None:
    assert searched(log(source), log(mirror, start=100)[-5:], stored) == next_offset


def test_a_copy_may_have_more_headers_and_no_other_timestamp_and_a_gap_before_it() -> None:
    x = [("origin", b"x")]
    source = [fetched(0, b"a", headers=x), fetched(1, b"b")]
    assert searched(source, [fetched(9, b"a", headers=x)], 0) == 1
    assert searched(source, [fetched(9, b"b", headers=[("origin", b"added")])], 0) == 2
    assert searched(source, [fetched(9, b"a")], 0) is None
    assert searched(source, [fetched(9, b"b", timestamp=2_000)], 0) is None
    assert searched([*log("abc"), *log("def", start=9)], log("abc"), 7) == 7


@given(st.integers(1, 60), st.data())
def test_different_records_are_always_found(count: int, data: st.DataObject) -> None:
    source = log([f"{at}" for at in range(count)])
    copied, stored = data.draw(st.integers(1, count)), data.draw(st.integers(0, count))
    assert searched(source, source[max(0, copied - 5) : copied], stored) == copied


# Consumers and producers of a topic, from what brokers told

STABLE = GroupState("Stable", [MemberState("m", "app-1", "10.0.0.3", {"orders": [0]})])


def clients(**changes: Any) -> TopicClients:
    facts: dict[str, Any] = {
        "topics": {"orders": 2},
        "ends": dict.fromkeys(ORDERS, 100),
        "groups": {"billing": STABLE},
        "offsets": {"billing": {ORDERS[0]: 70, ORDERS[1]: 90}},
    }
    (topic,) = ClientFacts(**{**facts, **changes}).clients()
    return topic


@pytest.mark.parametrize(
    ("changes", "state", "members", "lag", "records_per_s"),
    [
        ({}, "Stable", ["app-1"], 40, None),
        ({"offsets": {}}, "Stable", ["app-1"], None, None),  # members that committed nothing yet
        ({"groups": {"billing": GroupState("Empty", [])}}, "Empty", [], 40, None),
        (
            {"before": {"billing": {ORDERS[0]: 50, ORDERS[1]: 90}}, "elapsed_ms": 10_000},
            "Stable",
            ["app-1"],
            40,
            2,
        ),
    ],
    ids=["commits and members", "members", "commits", "two reads"],
)
def test_a_consumer_is_a_group_with_commits_or_members(
    changes: dict[str, Any], state: str, members: list[str], lag: int | None, records_per_s: float | None
) -> None:
    (group,) = clients(**changes).consumers
    assert (group.group, group.state, group.lag, group.records_per_s) == (
        "billing",
        state,
        lag,
        records_per_s,
    )
    assert [member.client_id for member in group.members] == members
    assert all((member.host, member.partitions) == ("10.0.0.3", [0]) for member in group.members)
    assert changes.get("offsets") is None or [one.offset for one in group.partitions] == [None]


def test_producers_with_their_names_where_there_are_any() -> None:
    mine, till = ActiveProducer(7, 0, 5, 2_000, 0, -1), ActiveProducer(8, 3, 5, 3_000, 0, 42)
    topic = clients(
        producers={ORDERS[0]: (mine, till), ORDERS[1]: (mine,)},
        transactional_ids={7: "repl.dc2.0", 8: "till-1"},
        owners={7: "one"},
    )
    latest, flow = topic.producers
    assert (latest.transactional_id, latest.flow, latest.open_since) == ("till-1", None, {0: 42})
    assert (flow.producer_id, flow.flow, flow.partitions, flow.open_since) == (7, "one", [0, 1], {})


def written(offset: int) -> list[Checkpoint]:
    """What the flow committed last."""
    state = CheckpointState.TRANSLATED
    return [Checkpoint(offset, offset, 1, state, "orders", written=offset, written_source=offset)]


def test_groups_that_only_flows_moved_do_not_count_as_readers() -> None:
    billing = [GroupPartition("billing", "orders", number) for number in range(3)]
    assert moved_by_consumers(dict.fromkeys(billing, 10), lambda _: written(10)) == {}
    # One that read in one partition counts with all: in the others there was nothing to read.
    read = {billing[0]: 25, billing[1]: 10, billing[2]: 10}
    committed = read | {GroupPartition("audit", "orders", 0): 10}
    assert moved_by_consumers(committed, lambda _: written(10)) == read
    assert moved_by_consumers({billing[0]: 0}, lambda _: []) == {billing[0]: 0}  # no flow writes here


def test_only_offsets_within_a_log_have_records() -> None:
    log = PartitionLog([batch_bytes([record(5), record(7)]), batch_bytes([record(8)])], start=5)
    cluster: Any = PartitionLogs({AT: log}, {AT.topic: ID})
    found = asyncio.run(fetch_places(cluster, AT, ID, [3, 5, 6, 8, 9, 10, 99]))
    assert sorted(found) == [5, 8]
    cluster = PartitionLogs({AT: PartitionLog(error=ErrorCode.KAFKA_STORAGE_ERROR)}, {AT.topic: ID})
    with pytest.raises(BrokerError, match="KAFKA_STORAGE_ERROR"):
        asyncio.run(fetch_places(cluster, AT, ID, [0]))


# How long one side of a verification is waited for

OPEN = answered(stable=3)
LAST = answered(batch_bytes([record(END - 1)]))


@pytest.mark.parametrize(
    ("answers", "takes_s", "raised"),
    [
        # The time that a quota took leaves its patience.
        ([GONE, LAST], LONG_S, None),
        ([OPEN, LAST], LONG_S, None),
        # A broker had not loaded the records from its remote storage in time.
        ([answered(), answered(), LAST], 0, None),
        ([answered()] * 8, 0, BrokerError),
        ([GONE] * 3, 0, Disconnected),
        ([OPEN] * 3, 0, OpenTransactionTimeout),
    ],
)
def test_a_side_is_waited_for(
    answers: list[FetchResponse | Exception], takes_s: float, raised: type[Exception] | None
) -> None:
    async def side() -> None:
        bucket = TokenBucket(None, asyncio.get_running_loop().time)
        broker: Any = OneBroker(list(answers), takes_s=takes_s)
        reader = CommittedRecordReader(broker, AT, ID, 3, END, PATIENCE_S, bucket)
        assert [[each.offset for each in records] async for records in reader] == [[END - 1]]
        assert reader.ended

    if raised is None:
        asyncio.run(side())
    else:
        with pytest.raises(raised):
            asyncio.run(side())


@jumping
async def test_a_log_that_ends_before_a_range_lacks_its_records() -> None:
    """A mirror whose leader lost its tail: the rest is missing, it is no error."""
    cluster: Any = PartitionLogs({AT: PartitionLog([batch_bytes([record(5)])], start=5)}, {AT.topic: ID})
    for low, found in ((20, [[]]), (5, [[5], []])):
        reader = CommittedRecordReader(cluster, AT, ID, low, 30, 10.0)
        assert [[each.offset for each in records] async for records in reader] == found
        assert reader.ended


# What `repl read` shows of a topic of which one partition has no leader


@pytest.mark.parametrize(
    ("start", "offsets", "silent"),
    [
        (Earliest(), [5, 6], [ORDERS[1]]),
        (Latest(), [6, 7], [ORDERS[1]]),
        ((0, 6), [6, 7], []),
    ],
)
def test_the_other_partitions_are_read(
    start: Start, offsets: list[int], silent: list[TopicPartition]
) -> None:
    @jumping
    async def read() -> None:
        records, left_out = await records_from(BROKERS, "dc1", BROKERS.topic("orders"), start, 2, 1.0)
        assert ([each.offset for each in records], left_out) == (offsets, silent)

    read()


@jumping
async def test_a_partition_that_can_not_be_read_is_an_error_where_it_is_asked_for() -> None:
    for number, why in ((1, "orders-1 has no leader that answers"), (7, "there is no orders-7")):
        with pytest.raises(AuditFailure, match=why):
            await records_from(BROKERS, "dc1", BROKERS.topic("orders"), (number, 0), 2, 1.0)
