"""From fetched sets to what goes out: whole where it can, rewritten where it must, mapped exactly (R6)."""

import tracemalloc

import pytest
from msgspec.structs import replace

from runtime.batch import (
    AbortedTransactions,
    Codec,
    CorruptBatch,
    DroppedRecords,
    Merge,
    OffsetDeltaRun,
    RewriteReason,
    RewriteSpec,
    TooLarge,
    UnpacksTooLarge,
    needs_rewrite,
    prepare,
)
from runtime.batch.codecs import unpack
from runtime.batch.rewrite import MOST_MERGED
from runtime.contract.records.provenance import ClusterPartition
from tests.runtime.batch.forge import (
    HERE,
    START,
    arrived,
    batch_bytes,
    batches,
    control_batch,
    empty_batch,
    legacy_bytes,
    record,
    sets,
    summed,
)

SPEC = RewriteSpec(HERE, max_batch=1_000_000)
NOW = START + 5000
# The delta of the last timestamp is -64: the largest varint of one byte.
SOME = [*(record(100 + at, b"x" * at) for at in range(3)), record(103, b"xxx", timestamp=START + 36)]
HOLED = [record(100), record(103), record(104)]
MERGING = replace(SPEC, merge=Merge(records=8, size=2000, up_to=100_000))


def test_a_batch_that_is_cut_at_the_end_stands_for_nothing_behind_it():
    """A position behind it would be committed, and a copy that was killed then would leave out the rest."""
    fetched = sets(batch_bytes(SOME, Codec.GZIP))
    first, rest = (prepare(fetched, replace(SPEC, **cut), NOW) for cut in ({"end": 102}, {"start": 102}))
    assert [out.position for out in (*first.outgoing, *rest.outgoing)] == [102, 104]
    assert [record.offset for record in (*arrived(first), *arrived(rest))] == [100, 101, 102, 103]


def test_a_whole_batch_passes_as_it_came():
    (source,) = batches(batch_bytes(SOME, Codec.GZIP))
    prepared = prepare([source], SPEC, NOW)
    assert prepared.position == 104
    (out,) = prepared.outgoing
    assert out.batch is source
    assert out == (source, (OffsetDeltaRun(0, 100, 4),), 104, RewriteReason.NONE, source.leader_epoch, 0)


CUT_START, HOLES, APPENDED = RewriteReason.START, RewriteReason.HOLES, RewriteReason.APPEND_TIME


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(
    ("source", "start", "reason", "expected", "runs", "position"),
    [
        ((SOME, {}), 102, CUT_START, SOME[2:], [(0, 102, 2)], 104),
        ((HOLED, {"last": 107}), 0, HOLES, HOLED, [(0, 100, 1), (1, 103, 2)], 108),
        ((HOLED, {"base": 98}), 0, HOLES, HOLED, [(0, 100, 1), (1, 103, 2)], 105),
        ((SOME, {"more": 0x08}), 0, APPENDED, SOME, [(0, 100, 4)], 104),
        ((HOLED, {"more": 0x58}), 101, HOLES | CUT_START | APPENDED, HOLED[1:], [(0, 103, 2)], 105),
    ],
)
def test_what_cannot_pass_is_rewritten(codec, source, start, reason, expected, runs, position):
    """The time of the broker becomes that of each record."""
    inside, fields = source
    spec, appended = replace(SPEC, start=start), RewriteReason.APPEND_TIME in reason
    (batch,) = batches(batch_bytes(inside, codec, **fields, max_timestamp=NOW if appended else None))
    assert needs_rewrite(batch, spec) == reason
    prepared = prepare([batch], spec, NOW)
    assert arrived(prepared) == [one._replace(timestamp=NOW) if appended else one for one in expected]
    (out,) = prepared.outgoing
    assert [tuple(one) for one in out.runs] == runs
    assert (out.position, prepared.position, out.batch.codec) == (position, position, codec)


def test_the_delete_horizon_moves_no_timestamp():
    """Its base timestamp is the horizon, and the deltas count from there, backwards too."""
    (source,) = batches(batch_bytes([record(1, timestamp=NOW), record(2, timestamp=START)], more=0x40))
    assert arrived(prepare([source], SPEC, NOW)) == arrived(
        prepare([source], replace(SPEC, max_batch=90), NOW)
    )


def test_markers_aborted_and_emptied_batches_only_move_the_position():
    data = batch_bytes([record(0)], producer=(5, 0, 0), more=0x10)
    fetched = sets(data, control_batch(1, 5, 0), empty_batch(2, 6), control_batch(7, 6, 1))
    assert prepare(fetched, SPEC, NOW, AbortedTransactions([(5, 0)])) == ([], 8, [], None)


def test_batches_of_returning_producer_ids_are_dropped():
    fetched = sets(batch_bytes(SOME, producer=(8, 0, 0)), batch_bytes([record(104)], producer=(9, 0, 0)))
    prepared = prepare(fetched, SPEC, NOW, returning_producer_ids={8})
    assert (arrived(prepared), prepared.dropped) == ([record(104)], [DroppedRecords(104, 4)])


class TestJoining:
    def test_small_neighbours_become_one(self):
        parts = [batch_bytes([record(at, b"%d" % at)], Codec.LZ4) for at in range(5, 9)]
        prepared = prepare(sets(*parts), MERGING, NOW)
        (out,) = prepared.outgoing
        assert (out.runs, out.position, out.reason) == (
            (OffsetDeltaRun(0, 5, 4),),
            9,
            RewriteReason.MERGE,
        )
        assert out.batch.codec == Codec.LZ4
        assert arrived(prepared) == [record(at, b"%d" % at) for at in range(5, 9)]

    def test_what_lies_between_them_is_skipped_and_mapped(self):
        fetched = sets(
            batch_bytes([record(0), record(1)], producer=(5, 0, 0), more=0x10),
            control_batch(2, 5, 1),
            batch_bytes([record(3)], producer=(6, 0, 0), more=0x10),
            control_batch(4, 6, 0),
            batch_bytes(HOLED),
        )
        prepared = prepare(fetched, replace(MERGING, start=1), NOW, AbortedTransactions([(6, 3)]))
        (out,) = prepared.outgoing
        assert out.runs == (OffsetDeltaRun(0, 1, 1), OffsetDeltaRun(1, 100, 1), OffsetDeltaRun(2, 103, 2))
        assert arrived(prepared) == [record(1), *HOLED]

    def test_a_large_one_passes_between_them(self):
        parts = [batch_bytes([record(0)]), batch_bytes([record(1, b"x" * 5000)]), batch_bytes([record(2)])]
        assert [out.reason for out in prepare(sets(*parts), MERGING, NOW).outgoing] == [
            RewriteReason.NONE
        ] * 3

    def test_other_compression_ends_a_group_and_plain_ones_take_that_of_their_neighbours(self):
        codecs = [Codec.NONE, Codec.LZ4, Codec.NONE, Codec.GZIP, Codec.GZIP, Codec.LZ4]
        parts = [batch_bytes([record(at)], codec) for at, codec in enumerate(codecs)]
        prepared = prepare(sets(*parts), MERGING, NOW)
        assert [(out.batch.records, out.batch.codec) for out in prepared.outgoing] == [
            (3, Codec.LZ4),
            (2, Codec.GZIP),
            (1, Codec.LZ4),
        ]

    def test_size_ends_a_group(self):
        codecs = [Codec.NONE] * 9
        parts = [batch_bytes([record(at, b"x" * 500)], codec) for at, codec in enumerate(codecs)]
        prepared = prepare(sets(*parts), replace(MERGING, merge=Merge(8, 2000, up_to=1800)), NOW)
        assert [out.batch.records for out in prepared.outgoing] == [3, 3, 3]
        assert len(arrived(prepared)) == 9

    @pytest.mark.parametrize("count", [60, 400])
    @pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
    def test_unpacked_size_ends_a_group(self, codec: Codec, count: int):
        """R8: also for batches that compression made small; a consumer unpacks what is merged as a whole."""
        fetched = sets(*(batch_bytes([record(at, bytes(200_000))], codec) for at in range(count)))
        tracemalloc.start()
        prepared = prepare(fetched, replace(SPEC, merge=Merge(up_to=1_000_000)), NOW)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 6 * MOST_MERGED
        assert prepared.failure is None
        assert prepared.position == count
        assert max(out.batch.records for out in prepared.outgoing) == MOST_MERGED // 200_100
        sources = [run for out in prepared.outgoing for run in out.runs]
        assert [run.source for run in sources] == list(range(0, count, MOST_MERGED // 200_100))
        assert sum(run.records for run in sources) == count

    def test_what_is_merged_is_unpacked_once(self, monkeypatch: pytest.MonkeyPatch):
        """Except for the batch that begins the next group, because it had no room in the one before."""
        unpacked: list[int] = []

        def counted(codec: Codec, packed: memoryview, limit: int) -> bytes:
            unpacked.append(len(packed))
            return unpack(codec, packed, limit)

        monkeypatch.setattr("runtime.batch.rewrite.unpack", counted)
        fetched = sets(*(batch_bytes([record(at, bytes(200_000))], Codec.ZSTD) for at in range(100)))
        merged = prepare(fetched, replace(SPEC, merge=Merge()), NOW).outgoing
        assert len(unpacked) == 100 + len(merged) - 1

    @pytest.mark.parametrize("count", [9, 300])
    def test_a_batch_beyond_the_unpacked_size_passes_between_those_that_are_merged(self, count: int):
        large = bytes(MOST_MERGED)
        values = [b"v"] * count + [large, large] + [b"v"] * count
        parts = [batch_bytes([record(at, value)], Codec.ZSTD) for at, value in enumerate(values)]
        prepared = prepare(sets(*parts), replace(SPEC, merge=Merge()), NOW)
        assert [(out.batch.records, out.reason) for out in prepared.outgoing] == [
            (count, RewriteReason.MERGE),
            (1, RewriteReason.NONE),
            (1, RewriteReason.NONE),
            (count, RewriteReason.MERGE),
        ]
        assert [one.value for one in arrived(prepared)] == values

    def test_times_far_apart_and_none_at_all_stay(self):
        times = [START, 0, -1, START + 10**12, 5]
        parts = [batch_bytes([record(at, timestamp=time)]) for at, time in enumerate(times)]
        assert [one.timestamp for one in arrived(prepare(sets(*parts), MERGING, NOW))] == times

    def test_a_bad_member_is_named_and_those_before_it_go_on(self):
        bad = bytearray(batch_bytes([record(2)]))
        bad[61] = 0x7F
        parts = [batch_bytes([record(at)]) for at in (0, 1)]
        prepared = prepare(sets(*parts, summed(bad), batch_bytes([record(3)])), MERGING, NOW)
        assert arrived(prepared) == [record(0), record(1)]
        assert prepared.position == 2
        assert isinstance(prepared.failure, CorruptBatch)
        assert str(prepared.failure).startswith("orders-3 at offset 2: unreadable records")


class TestSize:
    @pytest.mark.parametrize("codec", Codec)
    def test_a_batch_over_the_limit_is_split(self, codec: Codec):
        long = [record(at, bytes((at * 7 + i * i) % 251 for i in range(300))) for at in range(60)]
        prepared = prepare(sets(batch_bytes(long, codec)), replace(SPEC, max_batch=2000), NOW)
        assert arrived(prepared) == long
        assert max(out.batch.size for out in prepared.outgoing) <= 2000
        assert [out.position for out in prepared.outgoing] == [
            out.runs[-1].source + out.runs[-1].records for out in prepared.outgoing
        ]
        assert all(RewriteReason.TOO_LARGE in out.reason for out in prepared.outgoing)

    def test_a_record_over_the_limit_stops_there_and_not_before(self):
        many = [record(0), record(1), record(2, b"x" * 3000), record(3)]
        prepared = prepare(sets(batch_bytes(many)), replace(SPEC, max_batch=1000), NOW)
        assert arrived(prepared) == many[:2]
        assert prepared.position == 2
        assert isinstance(prepared.failure, TooLarge)
        assert (prepared.failure.offset, prepared.failure.limit) == (2, 1000)
        assert prepared.failure.size > 3000

    @pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
    def test_what_unpacks_past_the_bound_is_refused(self, codec: Codec):
        bomb = batch_bytes([record(0, bytes(10_000_000)), record(2)], codec)
        prepared = prepare(sets(bomb), replace(SPEC, max_unpacked=1_000_000), NOW)
        assert isinstance(prepared.failure, TooLarge)
        assert "unpacks to more than 1000000, the memory bound" in str(prepared.failure)

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
    def test_many_small_records_are_refused_before_they_take_memory(self, codec: Codec):
        """20,000 records of 10 bytes take 0.2 MB, and 5 MB as objects of Python."""
        many = batch_bytes([record(at, b"", key=b"") for at in range(20_000)], codec)
        bound = replace(SPEC, provenance=ClusterPartition("one", *HERE), max_unpacked=1_000_000)
        for spec in (bound, replace(bound, provenance=None, start=1)):
            tracemalloc.start()
            try:
                prepared = prepare(sets(many), spec, NOW)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert isinstance(prepared.failure, UnpacksTooLarge)
            assert "a record counts as 100 at least" in str(prepared.failure)
            assert peak < 100_000

    def test_compressed_messages_of_an_old_format_count_together(self):
        """Each of them alone unpacks to less than the bound."""
        value = b"v" * 40_000
        one = [legacy_bytes(1, Codec.GZIP, [(0, record(0, value))]) for _ in range(30)]
        data = b"".join(at.to_bytes(8, "big") + message[8:] for at, message in enumerate(one))
        prepared = prepare(sets(data), replace(SPEC, max_unpacked=1_000_000), NOW)
        assert isinstance(prepared.failure, UnpacksTooLarge)

    @pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
    def test_what_does_not_unpack_is_corrupt(self, codec: Codec):
        bad = bytearray(batch_bytes(HOLED, Codec.NONE))
        bad[22] = int(codec)
        prepared = prepare(sets(summed(bad)), SPEC, NOW)
        assert isinstance(prepared.failure, CorruptBatch)
        assert prepared.position == 100

    def test_rewritten_batches_take_another_compression_when_told(self):
        prepared = prepare(sets(batch_bytes(HOLED, Codec.GZIP)), replace(SPEC, codec=Codec.ZSTD), NOW)
        assert prepared.outgoing[0].batch.codec == Codec.ZSTD
        assert arrived(prepared) == HOLED


OLD = [record(50, b"a"), record(51, None), record(52, b"", key=None), record(55, b"d", key=b"")]


class TestOldFormats:
    @pytest.mark.parametrize("magic", [0, 1])
    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
    def test_are_written_anew(self, magic: int, codec: Codec):
        # Brokers number a compressed v1 relatively and put the last offset on the wrapper.
        relative = codec != Codec.NONE and magic == 1
        data = bytearray(legacy_bytes(magic, codec, [(one.offset - 50 * relative, one) for one in OLD]))
        if codec != Codec.NONE:
            data[:8] = (55).to_bytes(8, "big")
        prepared = prepare(sets(bytes(data)), replace(SPEC, start=51), NOW)
        times = [START + 51, START + 52, START + 55] if magic else [-1, -1, -1]
        expected = [one._replace(timestamp=at) for one, at in zip(OLD[1:], times, strict=True)]
        assert arrived(prepared) == expected
        (out,) = prepared.outgoing
        assert (out.batch.codec, out.position, out.reason) == (codec, 56, RewriteReason.FORMAT)
        assert out.runs == (OffsetDeltaRun(0, 51, 2), OffsetDeltaRun(2, 55, 1))


@pytest.mark.parametrize("magic", [0, 1])
def test_what_cannot_be_unpacked_in_an_old_format_stops_before_its_first_record(magic: int) -> None:
    """A compressed message has the offset of its last record."""
    data = bytearray(legacy_bytes(magic, Codec.GZIP, [(at, record(at, b"v" * 9_000)) for at in range(3)]))
    data[:8] = (13).to_bytes(8, "big")
    prepared = prepare(sets(batch_bytes([record(9)]), bytes(data)), replace(SPEC, max_unpacked=1_000), NOW)
    assert isinstance(prepared.failure, TooLarge)
    assert (len(prepared.outgoing), prepared.position) == (1, 10)
