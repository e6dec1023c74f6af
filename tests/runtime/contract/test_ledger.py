"""The ledger's records survive the wire and older readers; progress and its map move together (R1, R6)."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.contract.records.advance import (
    LARGEST,
    SEAL_AT,
    Advance,
    advance,
    first_progress,
    give_up,
    seal,
    start_over,
)
from runtime.contract.records.ledger import (
    Generation,
    GenerationKey,
    LedgerKey,
    Orphaned,
    OrphanedKey,
    PartitionKey,
    Progress,
    ProgressKey,
    Replayed,
    ReplayedKey,
    Segment,
    SegmentKey,
    UnreadableRecord,
    decode_generation,
    decode_key,
    decode_orphaned,
    decode_progress,
    decode_replayed,
    decode_segment,
    encode_key,
    encode_value,
    partition_of,
)
from runtime.contract.records.offset_map import (
    EndOfOffsetMap,
    MappedOffset,
    NotYetCopied,
    OffsetMap,
    Run,
    UnmappedOffset,
)

OF = PartitionKey("dc1-to-dc2", "orders", 3)


def first(position: int = 0, destination_end: int = 0) -> Progress:
    return first_progress(
        generation=1,
        source_topic_id=b"s" * 16,
        destination_topic="orders",
        destination_topic_id=b"d" * 16,
        position=position,
        destination_end=destination_end,
        now_ms=5,
    )


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (ProgressKey(OF), b'["progress","dc1-to-dc2","orders",3]'),
        (GenerationKey("dc1-to-dc2"), b'["generation","dc1-to-dc2"]'),
        (SegmentKey(OF, 0, 7), b'["segment","dc1-to-dc2","orders",3,0,7]'),
        (OrphanedKey(OF, 42), b'["orphaned","dc1-to-dc2","orders",3,42]'),
        (ReplayedKey(OF, 42), b'["replayed","dc1-to-dc2","orders",3,42]'),
    ],
)
def test_keys_are_json_and_never_change(key: LedgerKey, text: bytes) -> None:
    assert encode_key(key) == text
    assert decode_key(text) == key


@pytest.mark.parametrize("key", [None, b"", b"[]", b'["progress","f"]', b'["other","f","t",0]', b"\xff"])
def test_an_unknown_key_is_an_error_and_no_guess(key: bytes | None) -> None:
    with pytest.raises(UnreadableRecord):
        decode_key(key)


def test_values_come_back_as_they_were() -> None:
    progress, _ = advance(first(), Advance(5, 2, (Run(0, 0, 5),), 1, 5, 500, 1, 99), 1, 7)
    _, segment = seal(progress)
    generation = Generation(4, "dc2", "active", "driver", ["a", "b"], "c1", "c2", 9)
    orphaned = Orphaned(50, b"s" * 16, 9, "failback")
    replayed = Replayed(50, b"s" * 16, "orders", 8, 9)
    assert decode_progress(encode_value(progress)) == progress
    assert decode_orphaned(encode_value(orphaned)) == orphaned
    assert decode_replayed(encode_value(replayed)) == replayed
    assert decode_segment(encode_value(segment)) == segment
    assert decode_generation(encode_value(generation)) == generation


@pytest.mark.parametrize("value", [b"", b"\x02{}", b"\x01", b"\x01\x93\x01\x02\x03"])
def test_a_value_of_another_version_or_shape_is_an_error(value: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        decode_progress(value)


def test_a_newer_writer_s_added_field_is_ignored() -> None:
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(first()))
    newer = b"\x01" + msgspec.msgpack.encode([*fields, "a field of a later version"])
    assert decode_progress(newer) == first()


def test_tombstones_of_filtered_records_add_up_also_behind_an_older_writer() -> None:
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(first()))
    older = decode_progress(b"\x01" + msgspec.msgpack.encode(fields[:-1]))
    progress, _ = advance(older, Advance(5, 2, (Run(0, 0, 5),), records=5, tombstones=2), 1, 7)
    progress, _ = advance(progress, Advance(7, 2, (Run(5, 5, 2),), records=2, tombstones=1), 1, 8)
    assert (progress.records, progress.tombstones) == (7, 3)


def test_a_flow_lies_in_one_partition_that_depends_on_nothing_else() -> None:
    assert [partition_of(flow, 8) for flow in ("dc1-to-dc2", "dc2-to-dc1", "a")] == [2, 3, 3]


def test_records_and_map_move_together() -> None:
    progress, _ = advance(first(10, 100), Advance(15, 0, (Run(10, 100, 2), Run(13, 104, 2))), 1, 1)
    mapped = OffsetMap([progress.open_span()])
    assert progress.position == 15
    assert progress.destination_end == 106
    assert [mapped.translate(one) for one in (9, 10, 12, 14, 15, 16)] == [
        UnmappedOffset(),
        MappedOffset(100, exact=True),
        MappedOffset(104, exact=False),
        MappedOffset(105, exact=True),
        EndOfOffsetMap(106),
        NotYetCopied(),
    ]


def test_a_tail_that_held_nothing_moves_the_position_alone() -> None:
    progress, _ = advance(first(), Advance(5, 0, (Run(0, 0, 4),)), 1, 1)
    progress, _ = advance(progress, Advance(9, 0), 1, 2)
    assert (progress.position, progress.destination_end) == (9, 4)
    assert OffsetMap([progress.open_span()]).translate(7) == EndOfOffsetMap(4)


@pytest.mark.parametrize(
    "step", [Advance(4, 0), Advance(6, 0, (Run(5, 0, 2),)), Advance(9, 0, (Run(2, 9, 1),))]
)
def test_progress_never_goes_back_and_never_overstates(step: Advance) -> None:
    progress, _ = advance(first(), Advance(5, 0, (Run(0, 0, 5),)), 1, 1)
    with pytest.raises(ValueError, match=r"lies before|reaches beyond"):
        advance(progress, step, 1, 2)


def test_what_is_given_up_is_remembered_and_maps_to_what_comes_next() -> None:
    progress, _ = advance(first(), Advance(5, 0, (Run(0, 0, 5),)), 1, 1)
    progress = give_up(progress, 50, "lost", generation=2, now_ms=9)
    progress, _ = advance(progress, Advance(60, 0, (Run(50, 6, 10),)), 2, 10)
    assert [(gap.low, gap.end, gap.why) for gap in progress.gaps] == [(5, 50, "lost")]
    assert OffsetMap([progress.open_span()]).translate(20) == MappedOffset(6, exact=False)


def test_after_a_recreated_topic_older_offsets_are_unmapped() -> None:
    progress, _ = advance(first(), Advance(50, 0, (Run(0, 0, 50),)), 1, 1)
    again = start_over(
        progress,
        position=0,
        destination_end=50,
        source_topic_id=b"n" * 16,
        destination_topic_id=b"d" * 16,
        generation=2,
        now_ms=3,
    )
    again, _ = advance(again, Advance(2, 0, (Run(0, 51, 2),)), 2, 4)
    assert again.incarnation == 1
    assert OffsetMap([again.open_span()]).translate(1) == MappedOffset(52, exact=True)
    assert OffsetMap([again.open_span()]).origin(10) == UnmappedOffset()


def test_a_transaction_of_very_many_runs_seals_segments_of_bounded_size() -> None:
    runs = tuple(Run(2 * one, one, 1) for one in range(3 * LARGEST))
    progress, segments = advance(first(), Advance(6 * LARGEST + 5, 0, runs), 1, 1)
    assert [len(segment.span().runs) for segment in segments] == [LARGEST] * 3
    assert (progress.segments, progress.open_runs, progress.position) == (3, 0, 6 * LARGEST + 5)
    assert max(len(encode_value(segment)) for segment in segments) < 500_000
    mapped = OffsetMap([*(segment.span() for segment in segments), progress.open_span()])
    assert all(
        mapped.translate(run.source) == MappedOffset(run.destination, exact=True) for run in runs[::997]
    )


Transactions = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(0, 3), st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)))
    ),
    max_size=300,
)


@settings(deadline=None, max_examples=50)
@given(Transactions)
def test_segments_and_the_open_span_are_one_map_without_gaps(
    transactions: list[tuple[int, int, list[tuple[int, int]]]],
) -> None:
    """Each transaction: a gap at the destination, a tail at the source, and batches (gap at the source,
    records).
    """
    progress, segments = first(7, 70), list[Segment]()
    copied: dict[int, int] = {}
    for foreign, tail, batches in transactions:
        source, destination = progress.position, progress.destination_end + foreign + 1
        runs = []
        for gap, records in batches:
            source += gap
            runs.append(Run(source, destination, records))
            copied.update((source + one, destination + one) for one in range(records))
            source, destination = source + records, destination + records
        progress, sealed = advance(progress, Advance(source + tail, 0, tuple(runs)), 1, 1)
        progress = decode_progress(encode_value(progress))
        segments += [decode_segment(encode_value(one)) for one in sealed]
    assert progress.open_runs < SEAL_AT
    assert progress.segments == len(segments)
    mapped = OffsetMap([*(segment.span() for segment in segments), progress.open_span()])
    assert (mapped.low, mapped.end) == (7, progress.position)
    for source, there in copied.items():
        assert mapped.translate(source) == MappedOffset(there, exact=True)
        assert mapped.origin(there) == MappedOffset(source, exact=True)
