"""Small segments of an offset map become large ones, and every answer of the map stays the same (R6)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from runtime.contract.records.advance import LARGEST, Advance, advance, progress_records
from runtime.contract.records.ledger import (
    LedgerKey,
    LedgerValue,
    PartitionKey,
    Progress,
    ProgressKey,
    SegmentKey,
    UnreadableRecord,
    encode_key,
    encode_value,
)
from runtime.contract.records.offset_map import OffsetMap, Run, Span, UnmappedOffset, encode_runs
from runtime.contract.spec import naming
from runtime.kafka.records import InternalRecord
from runtime.ledger.ledger import Ledger
from runtime.ledger.map_cleaner import SealedSpan, clean_map, merge, mergeable
from runtime.ledger.offset_maps import OffsetMaps
from runtime.ledger.records import TopicReplaced
from tests.fakes.internal_topics import InternalTopics, stored
from tests.fakes.progress import progress
from tests.runtime.contract.test_offsetmap import Event, Model

ORDERS = PartitionKey("a-flow", "orders", 0)
SMALL, LARGE = 128, LARGEST


def sealed(*counts: int, gap_before: int | None = None) -> list[SealedSpan]:
    """Segments with so many runs, one behind the other; a gap lies before the one with the given number."""
    found, at = [], 0
    for number, count in enumerate(counts):
        low = at + 5 if number == gap_before else at
        runs = [Run(low + 2 * one, low + 3 * one, 1) for one in range(count)]
        at = low + 2 * count
        span = Span(low, at, low, runs[-1].destination_end, encode_runs(runs, low, low))
        found.append((SegmentKey(ORDERS, 0, number), span))
    return found


@pytest.mark.parametrize(
    ("counts", "gap_before", "groups"),
    [
        ([], None, []),
        ([SMALL] * 10, None, []),  # later segments will join them
        ([SMALL] * 65, None, []),  # the newest one does not count
        ([SMALL] * 66, None, [range(64)]),
        ([SMALL] * 130, None, [range(64), range(64, 128)]),
        ([LARGE, *[SMALL] * 66], None, [range(1, 65)]),
        ([SMALL, SMALL, LARGE, SMALL, SMALL], None, [range(2)]),  # nothing can join them later
        ([SMALL, LARGE, SMALL, SMALL], None, []),
        ([SMALL] * 6, 3, [range(3)]),
        ([LARGE // 2 + 1] * 4, None, []),
        ([LARGE // 2] * 4, None, [range(2)]),
    ],
)
def test_small_adjacent_segments_are_merged_once_they_fill_a_large_one(
    counts: list[int], gap_before: int | None, groups: list[range]
) -> None:
    found = [[key.number for key, _ in group] for group in mergeable(sealed(*counts, gap_before=gap_before))]
    assert found == [list(one) for one in groups]


@given(st.lists(Event, max_size=120), st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.data())
def test_a_merged_map_gives_the_same_answers(
    events: list[str], source: int, destination: int, data: st.DataObject
) -> None:
    model = Model(source, destination)
    for event in [*events, "seal"]:
        model.live(event)
    low = data.draw(st.integers(0, len(model.spans) - 1))
    end = data.draw(st.integers(low + 1, len(model.spans)))
    before = OffsetMap(model.spans)
    after = OffsetMap([*model.spans[:low], merge(model.spans[low:end]), *model.spans[end:]])
    for offset in range(source - 1, model.source + 2):
        assert after.translate(offset) == before.translate(offset)
        assert after.destination_behind(offset) == before.destination_behind(offset)
    for offset in range(destination - 1, model.end + 2):
        assert after.origin(offset) == before.origin(offset)


class LedgerOfOneFlow:
    """The internal topics of a destination, as a slot and the driver write them."""

    def __init__(self) -> None:
        self.topics = InternalTopics({naming.LEDGER: [], naming.OFFSET_MAP: []})
        self.written: list[LedgerKey] = []

    async def commit(self, records: Mapping[LedgerKey, LedgerValue | None]) -> None:
        for key, value in records.items():
            topic = naming.OFFSET_MAP if isinstance(key, SegmentKey) else naming.LEDGER
            encoded = encode_value(value) if value is not None else None
            self.topics.grow(topic, InternalRecord(encode_key(key), encoded))
            self.written.append(key)

    async def reader(self) -> OffsetMaps:
        return OffsetMaps(self.topics, await Ledger.open(self.topics))  # type: ignore[arg-type]

    async def clean(self, maps: OffsetMaps) -> int:
        return await clean_map(maps, self.topics, self, ORDERS.flow)  # type: ignore[arg-type]


async def copied(
    ledger: LedgerOfOneFlow, before: Progress, transactions: int, key: PartitionKey = ORDERS
) -> Progress:
    """Copies two records in each transaction; a marker lies behind them at the destination."""
    for _ in range(transactions):
        at, end = before.position, before.destination_end
        step = Advance(position=at + 2, source_epoch=0, runs=(Run(at, end + 1, 2),), records=2)
        before, segments = advance(before, step, 1, 1)
        if segments:
            await ledger.commit(progress_records(key, before, segments))
    await ledger.commit({ProgressKey(key): before})
    return before


FIRST = progress()


async def test_a_long_map_is_merged_once_and_read_alike_by_every_reader() -> None:
    ledger = LedgerOfOneFlow()
    newest = await copied(ledger, FIRST, 200 * SMALL + 7)
    running = await ledger.reader()
    await running.refresh(ORDERS.flow)
    before = running.get(ORDERS)
    assert before is not None
    assert len(before.spans) == 201
    assert await ledger.clean(running) == 3 * 63
    assert await ledger.clean(running) == 0
    newest = await copied(ledger, newest, SMALL)
    for reader in (running, await ledger.reader()):
        await reader.refresh(ORDERS.flow)
        after = reader.get(ORDERS)
        assert after is not None
        assert len(after.spans) == 3 + 9 + 1
        assert after.end == newest.position
        for offset in range(0, before.end, 97):
            assert after.translate(offset) == before.translate(offset)


async def test_a_reader_of_older_progress_finds_its_offsets_in_a_segment_that_was_merged_since() -> None:
    ledger = LedgerOfOneFlow()
    older = await copied(ledger, FIRST, 10 * SMALL + 50)
    reading = await ledger.reader()
    await reading.refresh(ORDERS.flow)
    expected = reading.get(ORDERS)
    assert expected is not None
    await copied(ledger, older, 60 * SMALL)
    await ledger.clean(await ledger.reader())
    await ledger.commit({ProgressKey(ORDERS): older})
    maps = await ledger.reader()
    await maps.refresh(ORDERS.flow)
    found = maps.get(ORDERS)
    assert found is not None
    assert maps.progress(ORDERS.flow) == {ORDERS: older}
    for offset in range(older.position):
        assert found.translate(offset) == expected.translate(offset)


async def test_segments_of_an_older_incarnation_are_deleted() -> None:
    ledger = LedgerOfOneFlow()
    newest = await copied(ledger, FIRST, 3 * SMALL)
    await ledger.commit({SegmentKey(ORDERS, -1, 0): merge([newest.open_span()])})
    reader = await ledger.reader()
    assert await ledger.clean(reader) == 1
    await reader.refresh(ORDERS.flow)
    assert {key.incarnation for key in reader.segments(ORDERS)} == {0}


async def test_a_file_keeps_its_map_under_another_name_until_it_is_forgotten() -> None:
    ledger = LedgerOfOneFlow()
    keys = {name: ORDERS._replace(topic=name) for name in ("app.log", "app.log.1", "file:1", "file:2")}
    old = await copied(ledger, replace(FIRST, map_name="file:1"), 2 * SMALL, keys["app.log"])
    moved: dict[LedgerKey, LedgerValue | None] = {
        ProgressKey(keys["app.log"]): None,
        ProgressKey(keys["app.log.1"]): old,
    }
    await ledger.commit(moved)
    new = await copied(ledger, replace(FIRST, map_name="file:2"), SMALL, keys["app.log"])
    reader = await ledger.reader()
    assert await ledger.clean(reader) == 0
    for name, made in (("app.log.1", old), ("app.log", new)):
        offsets = reader.get(keys[name])
        assert offsets is not None
        assert (offsets.low, offsets.end, len(offsets.spans)) == (0, made.position, made.segments + 1)
    await ledger.commit({ProgressKey(keys["app.log.1"]): None})
    assert await ledger.clean(reader) == 2
    await reader.refresh(ORDERS.flow)
    assert [len(reader.segments(keys[name])) for name in ("file:1", "file:2")] == [0, 1]


async def test_what_the_destination_has_deleted_is_trimmed_and_then_unmapped() -> None:
    ledger = LedgerOfOneFlow()
    newest = await copied(ledger, FIRST, 3 * SMALL)
    maps = await ledger.reader()
    await maps.refresh(ORDERS.flow)
    before = maps.get(ORDERS)
    assert before is not None
    assert not before.trimmed
    ledger.topics.starts["orders"] = before.spans[0].destination_end
    assert await ledger.clean(await ledger.reader()) == 1
    await ledger.commit({ProgressKey(ORDERS): replace(newest, written_at=9)})
    await maps.refresh(ORDERS.flow)
    after = maps.get(ORDERS)
    assert after is not None
    assert after.trimmed
    for offset in range(newest.position):
        expected = before.translate(offset) if offset >= after.low else UnmappedOffset()
        assert after.translate(offset) == expected
    assert after.low == before.spans[1].low


async def test_a_map_waits_for_the_marker_of_its_newest_segment() -> None:
    progress_, segments = advance(FIRST, Advance(2 * LARGE, 0, runs_of(LARGE)), 1, 1)
    topics = InternalTopics(
        {
            naming.LEDGER: stored({ProgressKey(ORDERS): progress_}),
            naming.OFFSET_MAP: stored({SegmentKey(ORDERS, 0, 0): segments[0]}),
        },
        committing=[naming.OFFSET_MAP],
    )
    maps = OffsetMaps(topics, await Ledger.open(topics))  # type: ignore[arg-type]
    for written in (False, True):
        await maps.refresh(ORDERS.flow)
        assert maps.sealing(ORDERS) is not written
        assert (maps.get(ORDERS) is not None) is written
    assert not maps.sealing(ORDERS._replace(partition=7))
    topics.replaced.add(naming.OFFSET_MAP)
    topics.grow(naming.OFFSET_MAP, InternalRecord(b"newer", None))
    with pytest.raises(TopicReplaced):
        await maps.refresh(ORDERS.flow)
    await maps.refresh(ORDERS.flow)  # the topic that is there now is read from its beginning


def runs_of(count: int) -> tuple[Run, ...]:
    return tuple(Run(2 * number, 3 * number, 1) for number in range(count))


async def test_a_segment_whose_runs_cannot_be_decoded_is_named_and_left_as_it_is() -> None:
    ledger = LedgerOfOneFlow()
    await copied(ledger, FIRST, 70 * SMALL)
    reader = await ledger.reader()
    await reader.refresh(ORDERS.flow)
    third = reader.segments(ORDERS)[SegmentKey(ORDERS, 0, 2)]
    broken = replace(merge([third]), encoded=third.encoded_runs()[:-1])
    await ledger.commit({SegmentKey(ORDERS, 0, 2): broken})
    ledger.written.clear()
    with pytest.raises(UnreadableRecord, match="orders-0, segments 0 to 63: the last run"):
        await ledger.clean(reader)
    assert ledger.written == []
