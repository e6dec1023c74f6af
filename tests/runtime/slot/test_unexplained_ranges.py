"""Reads ranges that the accounts of many partitions can't explain: each has its own finding."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.batch import Codec
from runtime.batch.failure import CorruptBatch
from runtime.contract.records.ledger import UnreadableRecord
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode, WireError
from runtime.kafka.protocol.metadata import NO_LEADER
from runtime.ledger.ledger import ProducerDirectory
from runtime.ledger.records import TopicReplaced
from runtime.slot.health.foreign_writes import ForeignWrites
from runtime.slot.offset_accounts import OffsetRange
from runtime.slot.partition import PartitionCopy
from tests.fakes.partition import partition
from tests.fakes.partition_logs import PartitionLog, PartitionLogs, Producers
from tests.runtime.batch.forge import HERE, batch_bytes, control_batch, empty_batch, legacy_bytes, record

OWN, OTHER_FLOW, NONE, UNREADABLE, CORRUPT, REPLACED, UNREACHABLE = range(1, 8)
PRODUCERS = Producers(
    {OWN: "flow", OTHER_FLOW: "other"},
    {
        UNREADABLE: UnreadableRecord("a version of the future"),
        CORRUPT: CorruptBatch(HERE, 5, "wrong checksum"),
        REPLACED: TopicReplaced("__repl.producers was recreated"),
        UNREACHABLE: WireError("no answer"),
    },
)
LOW = 100  # the destination's end in the progress of each partition
IDS = {"orders": b"d" * 16}
RESPONSE = 256 << 10
SILENT = 3


def data(offset: int, producer: int, size: int = 10) -> bytes:
    return batch_bytes([record(offset, b"v" * size)], producer=(producer, 0, 0), more=0x10)


def marker(offset: int) -> bytes:
    return control_batch(offset, OWN, 0)


class Found(NamedTuple):
    """Whether a foreign record was found, and whether ranges are left for a later read."""

    flagged: bool
    due: bool


FOREIGN, OWN_ONLY, LATER = Found(flagged=True, due=False), Found(flagged=False, due=False), Found(False, True)
LARGE = 100 << 10
CASES: dict[str, tuple[PartitionLog, Found]] = {
    "nothing": (PartitionLog(end=LOW), OWN_ONLY),
    "a marker": (PartitionLog([marker(100)]), OWN_ONLY),
    "many markers": (PartitionLog([marker(at) for at in range(100, 160)]), OWN_ONLY),
    "own records of an aborted transaction": (PartitionLog([data(100, OWN), marker(101)]), OWN_ONLY),
    "large own records": (PartitionLog([data(at, OWN, LARGE) for at in range(100, 105)]), OWN_ONLY),
    "another producer": (PartitionLog([marker(100), data(101, NONE)]), FOREIGN),
    "another flow": (PartitionLog([data(100, OTHER_FLOW)]), FOREIGN),
    "another behind large own records": (
        PartitionLog([*(data(at, OWN, LARGE) for at in range(100, 103)), data(103, NONE)]),
        FOREIGN,
    ),
    "a large foreign record": (PartitionLog([marker(100), data(101, NONE, 2 * RESPONSE)]), FOREIGN),
    "an old message format": (PartitionLog([legacy_bytes(1, Codec.NONE, [(100, record(100))])]), FOREIGN),
    "a foreign record that was compacted": (PartitionLog([empty_batch(100, 103, (NONE, 0, 0))]), FOREIGN),
    "removed by compaction": (PartitionLog(end=110), OWN_ONLY),
    "removed by retention": (PartitionLog(start=105, end=105), OWN_ONLY),
    "a marker behind retention": (PartitionLog([marker(105)], start=105), OWN_ONLY),
    "another behind retention": (PartitionLog([data(105, NONE)], start=105), FOREIGN),
    "no leader": (PartitionLog([data(100, NONE)], leader=NO_LEADER), LATER),
    "a leader that moved": (PartitionLog([data(100, NONE)], error=ErrorCode.NOT_LEADER_OR_FOLLOWER), LATER),
    "a broker that can't be reached": (PartitionLog([data(100, NONE)], leader=SILENT), LATER),
    **{
        f"producer {one} can't be looked up": (PartitionLog([marker(100), data(101, one)]), LATER)
        for one in (UNREADABLE, CORRUPT, REPLACED, UNREACHABLE)
    },
}


def checked(logs: Sequence[PartitionLog]) -> tuple[list[Found], PartitionLogs]:
    """What one pass finds in partitions whose log ends are behind the end that the flow wrote."""
    copies = [partition(number) for number in range(len(logs))]
    cluster = PartitionLogs({copy.at: log for copy, log in zip(copies, logs, strict=True)}, IDS, {SILENT})
    asyncio.run(read_due(cluster, copies))
    return [found(copy) for copy in copies], cluster


async def read_due(cluster: PartitionLogs, copies: Iterable[PartitionCopy]) -> None:
    checks = foreign_writes(cluster, copies)
    for copy in copies:
        copy.accounts.idle(cluster.logs[copy.at].next_offset)
    checks.committed(copies)
    await checks.read_due()


def foreign_writes(
    cluster: PartitionLogs, copies: Iterable[PartitionCopy], read_for_s: float = 60
) -> ForeignWrites:
    return ForeignWrites(
        "flow",
        cast(KafkaCluster, cluster),
        cast(ProducerDirectory, PRODUCERS),
        {copy.key: copy for copy in copies},
        read_for_s,
    )


def found(copy: PartitionCopy) -> Found:
    return Found(copy.foreign_writes, copy.accounts.doubtful)


@pytest.mark.parametrize("case", CASES)
def test_what_is_found_in_a_partition(case: str) -> None:
    log, expected = CASES[case]
    assert checked([log])[0] == [expected]


@given(st.lists(st.tuples(st.sampled_from(sorted(CASES)), st.integers(1, 2)), min_size=2, max_size=30))
def test_the_others_change_nothing(cases: list[tuple[str, int]]) -> None:
    logs = [CASES[name][0] for name, _ in cases]
    logs = [
        replace(log, leader=node) if log.leader == 1 else log
        for log, (_, node) in zip(logs, cases, strict=True)
    ]

    results, cluster = checked(logs)

    assert results == [CASES[name][1] for name, _ in cases]
    largest = max((len(batch) for log in logs for batch in log.batches), default=0)
    assert max(cluster.sizes, default=0) <= max(RESPONSE, largest)


def test_idle_partitions_share_requests() -> None:
    results, cluster = checked([PartitionLog([marker(LOW)], leader=1 + number % 2) for number in range(300)])

    assert set(results) == {OWN_ONLY}
    assert len(cluster.asked) == 4
    assert sum(cluster.sizes) == 300 * len(marker(LOW))


def test_a_broker_is_left_when_its_time_is_over_and_read_on_later() -> None:
    copies = [partition(number) for number in range(400)]
    for copy in copies:
        copy.resume()
    cluster = PartitionLogs({copy.at: PartitionLog([marker(LOW)]) for copy in copies}, IDS)

    async def passes() -> list[int]:
        checks = foreign_writes(cluster, copies, read_for_s=0)
        await checks.compare_ends()
        left: list[int] = []
        while not left or left[-1]:
            await checks.read_due()
            left.append(sum(copy.accounts.doubtful for copy in copies))
        return left

    assert asyncio.run(passes()) == [272, 144, 16, 0]


async def test_a_range_that_can_t_be_read_hides_no_other() -> None:
    copy = partition()
    cluster = PartitionLogs({copy.at: PartitionLog([data(100, UNREADABLE), data(110, NONE)])}, IDS)

    checks = foreign_writes(cluster, [copy])
    for one in (OffsetRange(100, 101), OffsetRange(110, 111)):
        copy.accounts.restore_range(one)
    checks.committed([copy])
    await checks.read_due()
    assert found(copy) == (True, True)


async def test_a_partition_that_was_released_is_not_read() -> None:
    kept, released = partition(0), partition(1)
    cluster = PartitionLogs({copy.at: PartitionLog([data(LOW, NONE)]) for copy in (kept, released)}, IDS)

    checks = foreign_writes(cluster, [kept])
    for copy in (kept, released):
        copy.accounts.idle(LOW + 1)
    checks.committed([kept, released])
    await checks.read_due()
    assert (kept.foreign_writes, released.foreign_writes) == (True, False)


async def test_ranges_of_a_log_whose_loss_was_accepted_are_not_read_from_the_new_one() -> None:
    copy = partition()
    log = PartitionLog([data(100, NONE)], error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    cluster = PartitionLogs({copy.at: log}, IDS, {SILENT})
    checks = foreign_writes(cluster, [copy])
    copy.accounts.idle(101)
    checks.committed([copy])
    await checks.read_due()
    assert found(copy) == LATER
    copy.committed(msgspec.structs.replace(copy.progress, incarnation=copy.progress.incarnation + 1))
    await checks.read_due()
    assert found(copy) == OWN_ONLY
