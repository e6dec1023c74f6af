"""Offsets of groups are placed by maps and checkpoints of both sides, on clusters without a broker."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from runtime.contract.groups import (
    Position,
    TranslatedOffset,
    UntranslatableOffset,
)
from runtime.contract.records.group_records import (
    Checkpoint,
    CheckpointState,
    ConsumerTimes,
    GroupPartition,
    OffsetTimestamp,
    encode_checkpoint,
    encode_checkpoint_key,
    encode_times,
    encode_times_key,
)
from runtime.contract.records.ledger import PartitionKey, Progress, ProgressKey
from runtime.contract.records.offset_map import Run
from runtime.contract.spec import naming
from runtime.contract.spec.jobspec import Route
from runtime.contract.spec.naming import TopicPartition
from runtime.contract.spec.route import Router
from runtime.contract.spec.selection import SelectionSpec
from runtime.groups.translation import (
    NO_MAPS,
    NO_PROGRESS,
    RECREATED_HERE,
    RECREATED_THERE,
    Checkpoints,
    ClusterRecords,
    GroupOffsetSides,
    PlacedOffset,
)
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.protocol.offsets import EARLIEST, ListedOffset, ListOffsetsRequest
from runtime.kafka.records import InternalRecord
from runtime.ledger.consumer_times import ConsumerTimeTable
from runtime.ledger.ledger import Ledger
from tests.fakes.internal_topics import InternalTopics, stored
from tests.fakes.progress import progress

FLOW, BACK, TOPIC = "flow", "back", "orders"
ITEM, OTHER = GroupPartition("billing", TOPIC, 0), GroupPartition("billing", "payments", 0)
AT = TopicPartition(TOPIC, 0)


class Cluster(InternalTopics):
    """The logs of its topics begin at 0, unless `start` is set; the first record at a time is at offset 2."""

    start = 0

    def id_of(self, topic: str) -> bytes:
        return self.topic(topic).id

    async def call(self, node: int, request: Any, purpose: str, within: float | None) -> Any:
        answers = await super().call(node, request, purpose, within)
        if isinstance(request, ListOffsetsRequest):
            for at, time in request.times.items():
                if at.topic == TOPIC:
                    answers[at] = ListedOffset(self.start if time == EARLIEST else 2, -1, 5)
        return answers


def holding(
    copied: Mapping[str, Progress],
    checkpoints: Mapping[tuple[str, GroupPartition], Checkpoint],
    times: Sequence[InternalRecord],
) -> Cluster:
    """A cluster whose internal topics hold progress, checkpoints and timestamps."""
    return Cluster(
        {
            naming.LEDGER: stored(
                {ProgressKey(PartitionKey(flow, TOPIC, 0)): value for flow, value in copied.items()}
            ),
            naming.OFFSET_MAP: [],
            naming.CHECKPOINTS: [
                InternalRecord(encode_checkpoint_key(*key), encode_checkpoint(value))
                for key, value in checkpoints.items()
            ],
            naming.TIMESTAMPS: times,
        }
    )


class Sides:
    """Source offsets 5 to 14 were copied to 105 to 114; with `both_write`, 0 to 3 of `back` to 3 to 6."""

    def __init__(
        self,
        *,
        both_write: bool = False,
        source_answers: bool = True,
        here: Mapping[tuple[str, GroupPartition], Checkpoint] | None = None,
        there: Mapping[tuple[str, GroupPartition], Checkpoint] | None = None,
        times: Sequence[InternalRecord] = (),
        by_time: bool = False,
    ) -> None:
        ids = Cluster({})
        named = {"source_topic_id": ids.id_of(TOPIC), "destination_topic_id": ids.id_of(TOPIC)}
        copied = progress(5, 105, Run(5, 105, 10), end=15, **named)
        returned = progress(0, 0, Run(0, 3, 4), end=4, **named)
        self.source = holding({BACK: returned} if both_write else {}, there or {}, ())
        self.destination = holding({FLOW: copied}, here or {}, times)
        ways = [Route(FLOW, "dc1", "dc2", SelectionSpec((TOPIC, "payments")))]
        if both_write:
            ways.append(Route(BACK, "dc2", "dc1", SelectionSpec((TOPIC,))))
        source, destination = (cast(KafkaCluster, one) for one in (self.source, self.destination))
        self.offsets = GroupOffsetSides(
            FLOW,
            Router(ways),
            Ledger(destination, 1),
            ClusterRecords(source) if source_answers else None,
            ClusterRecords(destination),
            ConsumerTimeTable(FLOW, source, destination) if by_time else None,
        )

    async def place(self, committed: int, item: GroupPartition = ITEM) -> PlacedOffset:
        await self.offsets.refresh([item.topic])
        return (await self.offsets.place({item: committed}))[item]


@pytest.mark.parametrize(
    ("committed", "expected"),
    [
        (5, TranslatedOffset(105)),
        (14, TranslatedOffset(114)),
        (15, TranslatedOffset(115)),
    ],
)
@pytest.mark.parametrize("source_answers", [True, False])
async def test_an_offset_is_placed_at_its_record_with_and_without_the_source(
    committed: int, expected: Position, source_answers: bool
) -> None:
    sides = Sides(source_answers=source_answers)
    assert await sides.place(committed) == PlacedOffset(AT, expected)
    assert sides.offsets.translator.progress(TOPIC, 0) is not None


async def test_what_was_not_copied_or_is_another_topic_has_no_place() -> None:
    assert await Sides().place(3, OTHER) == PlacedOffset(TopicPartition("", 0), NO_PROGRESS)
    assert isinstance((await Sides().place(3)).position, UntranslatableOffset)
    for where, why in (("source", RECREATED_THERE), ("destination", RECREATED_HERE)):
        sides = Sides()
        getattr(sides, where).replaced.add(TOPIC)
        assert await sides.place(7) == PlacedOffset(AT, why)


async def test_a_place_below_the_log_start_is_moved_up_to_it() -> None:
    sides = Sides()
    sides.destination.start = 110
    assert await sides.place(7) == PlacedOffset(AT, TranslatedOffset(110, clamped=True))
    assert await sides.place(12) == PlacedOffset(AT, TranslatedOffset(112))


@pytest.mark.parametrize(
    ("committed", "floor"),
    [
        (7, 4),  # all that `back` brought was read: the next is what it has not brought yet
        (5, 2),  # its records 2 and 3 lie at 5 and 6
    ],
)
async def test_where_both_sides_write_the_place_is_bounded_by_what_came_back(
    committed: int, floor: int
) -> None:
    sides = Sides(both_write=True)
    placed = await sides.place(committed)
    assert (placed.floor, placed.position) == (floor, TranslatedOffset(floor, settled=False))
    assert sides.offsets.translator.merged(TOPIC)
    assert not sides.offsets.translator.only_markers_between(ITEM, committed, 0, 1 << 40)
    assert Sides().offsets.source is not None


def checkpoint(source: int, destination: int, floor: int = -1, written: int = -1) -> Checkpoint:
    return Checkpoint(source, destination, 9, CheckpointState.TRANSLATED, TOPIC, written=written, floor=floor)


MINE, OTHERS = (FLOW, ITEM), ("another", ITEM)


async def test_without_the_source_the_floor_is_that_of_the_last_checkpoint() -> None:
    lost = Sides(both_write=True, source_answers=False)
    assert (await lost.place(7)).position == NO_MAPS
    for source, known in ((7, True), (6, True), (8, False)):
        lost = Sides(both_write=True, source_answers=False, here={MINE: checkpoint(source, 104, floor=3)})
        placed = await lost.place(7)
        expected = TranslatedOffset(3, settled=False) if known else NO_MAPS
        assert placed.position == expected


async def test_checkpoints_tell_what_this_product_committed_at_both_sides() -> None:
    sides = Sides(
        here={MINE: checkpoint(7, 107, written=107), OTHERS: checkpoint(1, 101, written=101)},
        there={OTHERS: checkpoint(3, 9, written=9)},
    )
    await sides.place(7)
    last = sides.offsets.last(ITEM)
    assert last is not None
    assert last.destination == 107
    assert sides.offsets.wrote("billing", AT) == {107, 101}
    assert (sides.offsets.is_ours(ITEM, 9), sides.offsets.is_ours(ITEM, 8)) == (True, False)
    assert not Sides(source_answers=False).offsets.is_ours(ITEM, 9)


@pytest.mark.parametrize(
    ("committed", "first", "same"),
    [(15, 115, True), (15, 116, True), (15, 114, False), (15, 118, False), (7, 107, True)],
)
async def test_between_the_last_copied_record_and_the_end_lie_only_markers(
    committed: int, first: int, same: bool
) -> None:
    sides = Sides()
    await sides.place(committed)
    end = 117 if committed == 15 else 107
    assert sides.offsets.translator.only_markers_between(ITEM, committed, first, end) is same


async def test_an_offset_below_the_map_is_placed_by_the_time_that_was_stored_for_it() -> None:
    stored = InternalRecord(
        encode_times_key(*MINE), encode_times(ConsumerTimes((OffsetTimestamp(3, 1_000),), 5))
    )
    sides = Sides(by_time=True, source_answers=False, times=[stored])
    assert (await sides.place(3)).position == TranslatedOffset(2, by_time=True)


async def test_a_checkpoint_is_in_memory_once() -> None:
    """Not its encoded value too: a job has the checkpoints of every group that was ever synced (R8)."""
    checkpoint = Checkpoint(3, 2, 9, CheckpointState.TRANSLATED, "orders")
    record = InternalRecord(encode_checkpoint_key(FLOW, ITEM), encode_checkpoint(checkpoint))
    checkpoints = Checkpoints(cast(KafkaCluster, InternalTopics({naming.CHECKPOINTS: [record]})))
    await checkpoints.refresh()
    assert checkpoints.get(FLOW, ITEM) == checkpoint
    assert checkpoints._scan is not None
    assert [value for _, value in checkpoints._scan.fold.items()] == [b""]


@pytest.mark.parametrize(("age_ms", "again"), [(0, False), (25 * 3_600_000, True)])
async def test_a_time_that_is_stored_is_not_looked_up_and_is_written_again_each_day(
    age_ms: int, again: bool
) -> None:
    at_ms = int(time.time() * 1000) - age_ms
    stored = InternalRecord(
        encode_times_key(*MINE), encode_times(ConsumerTimes((OffsetTimestamp(3, 1_000),), at_ms))
    )
    destination = cast(KafkaCluster, holding({}, {}, [stored]))
    times = ConsumerTimeTable(FLOW, cast(KafkaCluster, None), destination)
    await times.refresh()
    assert (times.time_of(ITEM, 3), times.time_of(ITEM, 2)) == (1_000, None)
    lookups = ConsumerTimeTable(FLOW, destination, destination)  # a look at its logs would fail
    await lookups.refresh()
    await lookups.read_from_source({ITEM: 3})
    assert bool(lookups.unsaved_records(1)) is again
    lookups.mark_saved()
    assert lookups.unsaved_records(1) == {}
