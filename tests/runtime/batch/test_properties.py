"""Whatever records there are, what arrives is what was there: another's codec writes, and reads it back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from runtime.batch import Codec, Merge, PreparedBatches, Record, RewriteSpec, prepare, records, walk
from runtime.batch.spec import NO_END
from runtime.contract.records.provenance import HEADER, ClusterPartition, ClusterTopic, Origin, encode
from tests.runtime.batch.forge import HERE, START, arrived, batch_bytes, legacy_bytes, sets

pytestmark = pytest.mark.slow

content = st.none() | st.binary(max_size=300) | st.integers(0, 40_000).map(lambda size: b"abc" * (size // 3))
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=200)), max_size=4)
times = st.integers(START - 10**6, START + 10**6) | st.sampled_from([0, 1, START + 10**11])
codecs = st.sampled_from(Codec)


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Record], list[bytes]]:
    """What a partition's log holds: batches of all codecs, with holes in, behind and between them."""
    offset = draw(st.integers(0, 2**40))
    all_records: list[Record] = []
    parts: list[bytes] = []
    for _ in range(draw(st.integers(1, 5))):
        base = offset
        inside: list[Record] = []
        for _ in range(draw(st.integers(1, 6))):
            offset += draw(st.sampled_from([0, 0, 0, 1, 70, 9000]))
            inside.append(Record(offset, draw(times), draw(content), draw(content), tuple(draw(headers))))
            offset += 1
        tail = draw(st.sampled_from([0, 0, 3]))
        parts.append(batch_bytes(inside, draw(codecs), base=base, last=offset - 1 + tail))
        offset += tail
        all_records += inside
    return all_records, parts


specs = st.builds(
    RewriteSpec,
    where=st.just(HERE),
    max_batch=st.sampled_from([45_000, 200_000, 1_000_000]),
    codec=st.none() | codecs,
    merge=st.none() | st.builds(Merge, st.integers(0, 10), st.integers(0, 5000), st.integers(500, 100_000)),
    provenance=st.none() | st.just(ClusterPartition("dc1-id", "orders", 3)),
    home=st.none() | st.just(ClusterTopic("dc2-id", "orders")),
)


def expected(one: Record, spec: RewriteSpec) -> Record:
    if spec.provenance is None:
        return one
    return one._replace(headers=(*one.headers, (HEADER, encode(Origin(*spec.provenance, one.offset, START)))))


@given(logs(), specs, st.data())
def test_every_wanted_record_arrives_once_in_order_unchanged_and_mapped(
    log, spec: RewriteSpec, data: st.DataObject
):
    written, parts = log
    start = data.draw(st.integers(written[0].offset, written[-1].offset + 2))
    end = data.draw(st.just(NO_END) | st.integers(start, written[-1].offset + 3))
    spec = replace(spec, start=start, end=end)
    prepared = prepare(sets(*parts), spec, START)
    if prepared.failure is None:
        assert arrived(prepared) == [expected(one, spec) for one in written if start <= one.offset < end]
        assert prepared.position == max(start, min(sets(*parts)[-1].next_offset, end))
    else:  # two fields of 40 KB in one record: all that lies before it arrived
        stop = prepared.failure.offset
        assert arrived(prepared) == [expected(one, spec) for one in written if start <= one.offset < stop]
        assert prepared.position == stop
    positions_ascend_and_follow_their_batches(prepared)


def positions_ascend_and_follow_their_batches(prepared: PreparedBatches) -> None:
    before = -1
    for out in prepared.outgoing:
        assert before < out.runs[0].source or before == out.runs[0].source
        last = out.runs[-1]
        assert out.position >= last.source + last.records
        before = out.position
    assert prepared.position >= before


@given(logs(), st.data())
def test_records_are_read_as_anothers_codec_wrote_them_also_from_a_response_cut_anywhere(
    log, data: st.DataObject
):
    """A cut response gives its whole batches, and the rest comes with the next one."""
    written, parts = log
    response = b"".join(parts)
    cut = data.draw(st.integers(len(parts[0]), len(response)))
    first = walk(response[:cut], HERE)
    taken = sum(one.size for one in first.sets)
    assert (first.failure, first.needed == 0) == (None, taken == cut)
    second = walk(response[taken:], HERE)
    assert [one for batch in (*first.sets, *second.sets) for one in records(batch, HERE)] == written


old = st.builds(lambda key, value, time: Record(0, time, key, value, ()), content, content, times)


@given(
    st.lists(old, min_size=1, max_size=6),
    st.sampled_from([0, 1]),
    st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]),
)
def test_old_formats_arrive_too(inside: list[Record], magic: int, codec: Codec):
    numbered = [one._replace(offset=at) for at, one in enumerate(inside)]
    data = bytearray(legacy_bytes(magic, codec, enumerate(inside)))
    if codec != Codec.NONE:
        data[:8] = (len(inside) - 1).to_bytes(8, "big")
    prepared = prepare(sets(bytes(data)), RewriteSpec(HERE, 1_000_000), START)
    assert arrived(prepared) == [one if magic else one._replace(timestamp=-1) for one in numbered]
