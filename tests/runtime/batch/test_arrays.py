"""What numpy does for many records at once is what the loops of `splice` do one by one."""

import itertools
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.batch import Batch, DroppedRecords, Merge, Record, RewriteSpec, prepare, walk
from runtime.batch import records as records_of
from runtime.batch.arrays import merge_bodies, offset_runs, worth_merging
from runtime.batch.splice import Raw, join, scan, with_header
from runtime.contract.records.provenance import ClusterPartition, ClusterTopic, constant_part, offset_part
from tests.runtime.batch.forge import HERE, START, arrived, batch_bytes, record, sets

content = st.none() | st.binary(max_size=300) | st.just(b"x" * 9000)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=20)), max_size=2)
times = st.integers(START - 10**6, START + 10**9)
HEADER = b"\x0c__repl\x20" + bytes(range(8))  # the constant part ends before the offset


@st.composite
def small_batches(draw: st.DrawFn, with_headers=headers) -> list[Batch]:
    """Whole batches of a few records each, with gaps between some of them."""
    offset, parts = draw(st.integers(0, 2**40)), b""
    for _ in range(draw(st.integers(1, 8))):
        count = draw(st.integers(1, 6))
        inside = [
            Record(offset + at, draw(times), draw(content), draw(content), tuple(draw(with_headers)))
            for at in range(count)
        ]
        parts += batch_bytes(inside)
        offset += count + draw(st.sampled_from([0, 0, 1, 500]))
    return [one for one in walk(parts, HERE).sets if isinstance(one, Batch)]


def one_by_one(batches: list[Batch], bodies: list[bytes], header: bytes | None = None):
    found: list[Raw] = []
    for batch, body in zip(batches, bodies, strict=True):
        scan(body, batch.records, batch.base_offset, batch.base_timestamp, found)
    if header:
        found = [(at, time, with_header(tail, header + offset_part(at))) for at, time, tail in found]
    return join(found)


def merged(batches: list[Batch], bodies: list[bytes], header: bytes | None = None):
    counts, times = [one.records for one in batches], [one.base_timestamp for one in batches]
    return merge_bodies(bodies, counts, times, [one.base_offset for one in batches], header)


@given(small_batches(), st.sampled_from([None, b"", HEADER]))
def test_merged_batches_are_those_that_are_joined_record_by_record(
    batches: list[Batch], header: bytes | None
):
    """Provenance of which nothing is added still drops records, by the headers that they have.

    Records that have headers are left to the loop then.
    """
    bodies = [bytes(one.body) for one in batches]
    left = header is not None and any(one.headers for batch in batches for one in records_of(batch, HERE))
    assert merged(batches, bodies, header) == (None if left else one_by_one(batches, bodies, header))
    runs = offset_runs([one.base_offset for one in batches], [one.records for one in batches])
    mapped = [run.source + at for run in runs for at in range(run.records)]
    assert mapped == [one.base_offset + at for one in batches for at in range(one.records)]
    assert [run.delta for run in runs] == list(itertools.accumulate([0, *(run.records for run in runs[:-1])]))
    assert all(a.source + a.records != b.source for a, b in itertools.pairwise(runs))


@given(small_batches(with_headers=st.just([]) | headers), st.data())
def test_bytes_that_were_changed_are_merged_only_where_one_by_one_gives_the_same(
    batches: list[Batch], data: st.DataObject
):
    bodies = [bytes(one.body) for one in batches]
    which = data.draw(st.integers(0, len(bodies) - 1))
    bodies[which] = changed(bodies[which], data)
    header = data.draw(st.sampled_from([None, b"", HEADER]))
    result = merged(batches, bodies, header)
    assert result is None or result == one_by_one(batches, bodies, header)


def test_many_small_batches_go_out_as_one_with_their_map():
    data = b"".join(batch_bytes([record(at + i) for i in range(3)]) for at in range(0, 1800, 3) if at != 900)
    batches = [one for one in walk(data, HERE).sets if isinstance(one, Batch)]
    assert worth_merging([one.records for one in batches])
    prepared = prepare(batches, RewriteSpec(HERE, 1 << 20, merge=Merge()), START)
    assert [one.runs for one in prepared.outgoing] == [((0, 0, 900), (900, 903, 897))]
    assert [one.offset for one in arrived(prepared)] == [at for at in range(1800) if not 900 <= at < 903]


@pytest.mark.parametrize("returning", [None, 602])
def test_small_batches_get_their_header_while_they_are_joined(returning: int | None):
    """One record that comes home is dropped, and changes nothing for the others."""
    home, place = ClusterTopic("D" * 22, "orders"), ClusterPartition("S" * 22, "orders", 0)
    at_home = constant_part(ClusterPartition(*home, 0), START) + offset_part(7)
    parts = [
        [record(at + i, headers=(("__repl", at_home),) if at + i == returning else ()) for i in range(3)]
        for at in range(0, 1200, 3)
    ]
    spec = RewriteSpec(HERE, 1 << 20, merge=Merge(), provenance=place, home=home)
    prepared = prepare(sets(*map(batch_bytes, parts)), spec, START)
    assert len(prepared.outgoing) == 1
    expected = {
        at: (("__repl", constant_part(place, START) + offset_part(at)),)
        for at in range(1200)
        if at != returning
    }
    assert {one.offset: one.headers for one in arrived(prepared)} == expected
    assert prepared.dropped == ([] if returning is None else [DroppedRecords(returning + 1, 1)])


def changed(body: bytes, data: st.DataObject) -> bytes:
    """One byte is another, or the end is missing."""
    at = data.draw(st.integers(0, len(body) - 1))
    if data.draw(st.booleans()):
        return body[:at]
    return body[:at] + bytes([data.draw(st.integers(0, 255))]) + body[at + 1 :]


def test_reading_records_does_not_load_numpy() -> None:
    program = "import runtime.batch, sys; print('numpy' in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout == "False\n"
