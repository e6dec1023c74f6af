"""What numpy does for the headers of whole batches is what the loop of `splice` does record by record."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.batch import Batch, Codec, Merge, PreparedBatches, Record, RewriteReason, RewriteSpec, prepare
from runtime.batch.arrays import copy_ranges
from runtime.batch.codecs import unpack
from runtime.batch.headers import add_header
from runtime.batch.layout import LOG_APPEND_TIME
from runtime.batch.origin import OriginRule
from runtime.batch.rewrite import rewrite
from runtime.batch.splice import extend
from runtime.contract.records.provenance import ClusterPartition, ClusterTopic, Origin, encode, origins
from tests.runtime.batch.forge import HERE, START, arrived, batch_bytes, batches, record, sets

PLACE = ClusterPartition("B" * 22, "orders", 3)
HOME = ClusterTopic("C" * 22, "orders")
FROM_A = ("__repl", encode(Origin("A" * 22, "orders", 1, 77, START - 5)))
FROM_HOME = ("__repl", encode(Origin(*HOME, 0, 12, START - 5)))
SPEC = RewriteSpec(HERE, 8 << 20, provenance=PLACE, home=HOME, merge=Merge())

content = (
    st.none()
    | st.binary(max_size=80)
    | st.sampled_from([60, 63, 64, 127, 4095, 8190, 9000]).map(lambda size: b"x" * size)
)
times = st.integers(START - 10**6, START + 10**9)
an_own = st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=200))
any_header = an_own | st.sampled_from([FROM_A, FROM_HOME, ("__repl", None), ("__repl", b"another's")])


@st.composite
def logs(
    draw: st.DrawFn, header: st.SearchStrategy = any_header, most_headers: int | None = None
) -> list[bytes]:
    """Whole batches, one behind the other, most of them with a few records."""
    offset, parts = draw(st.integers(0, 2**50)), []
    for _ in range(draw(st.integers(1, 3))):
        headers = draw(
            st.sampled_from(
                [
                    st.just([]),
                    st.lists(header, max_size=3),
                    st.lists(header, min_size=1, max_size=most_headers),
                ]
            )
        )
        count = draw(st.sampled_from([1, 2, 5, 66]))
        shapes = draw(st.lists(st.tuples(times, content, content, headers), min_size=1, max_size=6))
        inside = [
            Record(offset + at, time, key, value, tuple(found))
            for at in range(count)
            for time, key, value, found in [shapes[at % len(shapes)]]
        ]
        parts.append(batch_bytes(inside))
        offset += count + draw(st.sampled_from([0, 0, 3]))
    return parts


def headed(members: Sequence[Batch], bodies: Sequence[bytes | memoryview], rule: OriginRule):
    counts, firsts = [one.records for one in members], [one.base_offset for one in members]
    return add_header(bodies, counts, firsts, rule)


def one_by_one(batch: Batch, body: bytes | memoryview, rule: OriginRule) -> bytes | None:
    return extend(bytes(body), batch.records, batch.base_offset, rule.header, rule.drops)


def same(members: Sequence[Batch], bodies: Sequence[bytes | memoryview], spec: RewriteSpec) -> int:
    """Compares every body that was made; returns how many there are."""
    rule, made = OriginRule(spec, START), 0
    for batch, body, found in zip(members, bodies, headed(members, bodies, rule), strict=True):
        if found is None:
            continue
        made += 1
        expected = one_by_one(batch, body, rule)
        if len(found):
            assert found == expected
        else:
            assert expected is None
            alone = batch._replace(body=memoryview(body))
            assert list(rewrite([alone], spec, rule, RewriteReason.RECORDS)) == []
            assert sum(one.records for one in rule.dropped) == batch.records
            rule.dropped.clear()
    return made


@given(logs(), st.booleans())
def test_bodies_are_those_that_are_made_record_by_record(parts: list[bytes], in_one_response: bool):
    """The bodies are views of one response, or each has memory of its own, as unpacked ones have."""
    members = batches(*parts)
    bodies = [one.body if in_one_response else bytes(one.body) for one in members]
    made = same(members, bodies, SPEC)
    rule = OriginRule(SPEC, START)
    drops = [one_by_one(one, one.body, rule) is None for one in members]
    assert made == len(members) or any(drops)


@given(
    logs(header=an_own, most_headers=62),
    st.sampled_from([SPEC, RewriteSpec(HERE, 8 << 20, provenance=PLACE, native_only=True)]),
)
def test_headers_of_applications_stay_and_cost_no_loop(parts: list[bytes], spec: RewriteSpec):
    """Up to 62 of them: the count of 64 needs a second byte, and such a batch is left to the loop."""
    members = batches(*parts)
    assert same(members, [one.body for one in members], spec) == len(members)


@given(logs(), st.data())
def test_bytes_that_were_changed_give_the_same_or_are_left_to_the_loop(
    parts: list[bytes], data: st.DataObject
):
    members = batches(*parts)
    bodies = [bytes(one.body) for one in members]
    which = data.draw(st.integers(0, len(bodies) - 1))
    body = bodies[which]
    at = data.draw(st.integers(0, len(body) - 1))
    changed = data.draw(st.none() | st.integers(0, 255))
    bodies[which] = body[:at] + (b"" if changed is None else bytes([changed]) + body[at + 1 :])
    rule = OriginRule(SPEC, START)
    for batch, one, found in zip(members, bodies, headed(members, bodies, rule), strict=True):
        if found:
            assert found == one_by_one(batch, one, rule)
        elif found is not None:
            assert one_by_one(batch, one, rule) is None


def test_a_record_with_sixty_three_headers_is_left_to_the_loop():
    """One more header would make the header count longer, and so the record itself."""
    for many, expected in ((62, False), (63, True)):
        members = batches(batch_bytes([record(at, headers=[("a", b"b")] * many) for at in range(5)]))
        (found,) = headed(members, [one.body for one in members], OriginRule(SPEC, START))
        assert (found is None) == expected


def test_a_bad_body_is_left_to_the_loop_which_names_the_reason():
    members = batches(*(batch_bytes([record(at + i) for i in range(200)]) for at in (0, 200, 400)))
    bad = members[1]._replace(body=memoryview(bytes(members[1].body[:-1])))
    prepared = prepare([members[0], bad, members[2]], SPEC, START)
    assert [out.batch.base_offset for out in prepared.outgoing] == [0]
    assert prepared.failure is not None
    assert (prepared.position, prepared.failure.offset) == (200, 200)


def test_a_batch_that_claims_more_records_than_bytes_is_refused():
    parts = [batch_bytes([record(at + i, b"v" * 9000) for i in range(150)]) for at in (0, 150)]
    first, second = batches(*parts)
    second = second._replace(records=2**31 - 1, last_offset_delta=2**31 - 2)
    prepared = prepare([first, second], SPEC, START)
    assert [out.batch.base_offset for out in prepared.outgoing] == [0]
    assert prepared.failure is not None
    assert prepared.failure.offset == 150


def plain(prepared: PreparedBatches) -> list[tuple[object, ...]]:
    """The outgoing batches, with their records unpacked."""
    return [
        (out.batch._replace(body=memoryview(unpack(out.batch.codec, out.batch.body, 1 << 28))), *out[1:])
        for out in prepared.outgoing
    ]


def many(header: Sequence[tuple[str, bytes | None]] = (), first: int = 0, **more) -> list[bytes]:
    """1,000 records in batches that are not small, with null keys, tombstones and values of all sizes.

    In each batch, one timestamp has the delta -64: the largest varint of one byte.
    """
    sizes = [0, 1, 50, 62, 63, 64, 120, 700, 1024, 8185, 9000]
    inside = [
        record(
            at,
            None if at % 17 == 3 else b"v" * sizes[at % 11],
            key=b"k" if at % 3 else None,
            headers=header,
            timestamp=START + at - (71 if (at - first) % 125 == 7 else 0),
        )
        for at in range(first, first + 1000)
    ]
    return [batch_bytes(inside[at : at + 125], **more) for at in range(0, 1000, 125)]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("header", [(), [("trace", b"\xff"), FROM_A]], ids=["native", "A-B-C"])
def test_neighbours_are_rewritten_together_as_each_is_alone(codec: Codec, header):
    members = sets(*many(header, codec=codec))
    together = prepare(members, SPEC, START)
    assert all(out.batch.codec == codec for out in together.outgoing)
    alone = [
        out for one in members for out in prepare([one], SPEC, START).outgoing
    ]  # below the least for arrays
    assert plain(together) == plain(together._replace(outgoing=alone))
    assert [out.batch.size for out in together.outgoing] == [out.batch.size for out in alone]
    hops = [[one.cluster for one in origins(it.headers)] for it in arrived(together)]
    assert hops == [["A" * 22] * bool(header) + ["B" * 22]] * 1000


def test_records_that_return_home_are_dropped_and_the_others_are_not():
    """Whole batches return, as a flow wrote them; one batch is mixed."""
    mixed = [record(at, headers=[FROM_HOME] if at % 2 else []) for at in range(2000, 2200)]
    prepared = prepare(sets(*many([FROM_HOME]), *many([FROM_A], 1000), batch_bytes(mixed)), SPEC, START)
    assert [one.offset for one in arrived(prepared)] == [*range(1000, 2000), *range(2000, 2200, 2)]
    assert (sum(one.records for one in prepared.dropped), prepared.position, prepared.failure) == (
        1100,
        2200,
        None,
    )


def test_append_time_and_compaction_holes_lie_between_neighbours():
    """They are rewritten on their own; what lies before and behind them keeps its order."""
    holes = [record(at) for at in range(1000, 1200) if at % 5]
    appended = [record(at) for at in range(1200, 1400)]
    parts = [
        *many(),
        batch_bytes(holes, last=1199),
        batch_bytes(appended, more=LOG_APPEND_TIME, max_timestamp=START + 10**6),
        *many(first=1400),
    ]
    prepared = prepare(sets(*parts), SPEC, START)
    found = arrived(prepared)
    assert [one.offset for one in found] == [at for at in range(2400) if not 1000 <= at < 1200 or at % 5]
    assert {one.timestamp for one in found if 1200 <= one.offset < 1400} == {START + 10**6}
    assert all(a.position <= b.position for a, b in pairwise(prepared.outgoing))


def test_a_batch_that_grows_past_the_limit_is_split():
    parts = many()
    limit = max(map(len, parts)) + 100
    prepared = prepare(sets(*parts), RewriteSpec(HERE, limit, provenance=PLACE, home=HOME), START)
    assert [one.offset for one in arrived(prepared)] == [*range(1000)]
    assert all(out.batch.size <= limit for out in prepared.outgoing)
    assert len(prepared.outgoing) > len(parts)


@given(st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 40)), min_size=1, max_size=60))
def test_ranges_of_any_size_are_copied_and_nothing_beside_them(ranges):
    """Each range has a gap before it, at the source and at the target."""
    sizes, gaps = (np.array(found, np.int64) for found in zip(*ranges, strict=True))
    ends = np.cumsum(sizes + gaps)
    starts = ends - sizes
    source = np.arange(int(ends[-1]), dtype=np.int64).astype(np.uint8)
    target, order = np.full(len(source), 255, np.uint8), np.argsort(-starts)
    expected = target.copy()
    for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
        expected[start : start + size] = source[start : start + size]
    copy_ranges(source, starts[order], sizes[order], target, starts[order])
    assert (target == expected).all()
