"""The checker on forged copies: it finds what was done to them, and nothing where nothing was done."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.contract.records.provenance import Origin
from tests.checker.compare import compare_logs
from tests.checker.reader import Log, Seen
from tests.checker.report import Finding, Kind, Report
from tests.checker.shapes import Spec, digest, shaped

SPEC = Spec(large_every=0)


def seen(number: int, offset: int) -> Seen:
    _, timestamp, key, value, headers = shaped(number, SPEC)
    whole, content = digest(timestamp, key, value, headers), digest(None, key, value, headers)
    return Seen(offset, timestamp, whole, content, str(key))


def logs(count: int = 40) -> tuple[Log, Log]:
    """Offsets differ on the two sides, as they do where markers and aborted records lie between."""
    here = {at: [seen(number, number * 3) for number in range(at, count, 2)] for at in (0, 1)}
    there = {at: [one._replace(offset=index) for index, one in enumerate(log)] for at, log in here.items()}
    return here, there


def found(report: Report) -> dict[Kind, int]:
    return dict(Counter(finding.kind for finding in report.findings))


def test_a_true_copy_is_clean_and_pairs_the_offsets():
    report = compare_logs(*logs())
    assert report.clean
    assert (report.records, report.arrived) == (40, 40)
    assert report.pairs[1][:3] == [(3, 0), (9, 1), (15, 2)]
    assert str(report) == "t → t: 40 of 40 records; 0 missing, 0 doubled, 0 reordered, 0 changed"


def test_what_went_wrong_at_the_source_is_told_and_is_not_the_copys():
    report = compare_logs(*logs())
    for kind in Kind:
        one = Finding(kind, 0, 1, 1, 1, "key")
        told = replace(report, findings=[one])
        assert not told.clean
        assert told.exact == (kind in (Kind.LOST_AT_SOURCE, Kind.UNABORTED))
        assert kind in str(told)


def swapped(there: Log) -> None:
    there[0][3], there[0][4] = there[0][4], there[0][3]


@pytest.mark.parametrize(
    ("forge", "kinds", "offsets"),
    [
        (lambda there: there[0].pop(7), {Kind.MISSING: 1}, (42, None)),
        (lambda there: there.pop(1), {Kind.MISSING: 20}, (3, None)),
        (lambda there: there[1].insert(5, there[1][4]._replace(offset=99)), {Kind.DOUBLED: 1}, (None, 99)),
        (swapped, {Kind.REORDERED: 1}, (18, 3)),
        (lambda there: there[1].append(there[0].pop()), {Kind.MISSING: 1, Kind.FOREIGN: 1}, (114, None)),
        (lambda there: there[0].insert(2, seen(1_000, 50)), {Kind.FOREIGN: 1}, (None, 50)),
    ],
    ids=["a loss", "a lost partition", "a duplicate", "a swap", "in another partition", "a foreign record"],
)
def test_what_was_done_to_a_copy_is_found(
    forge: Callable[[Log], object], kinds: dict[Kind, int], offsets: tuple[int | None, int | None]
):
    here, there = logs()
    forge(there)
    report = compare_logs(here, there)
    assert found(report) == kinds
    first = report.findings[0]
    assert (first.source, first.there) == offsets
    assert str(first) in str(report)


@pytest.mark.parametrize(
    ("field", "value"), [("key", b"K"), ("value", None), ("value", b""), ("headers", []), ("timestamp", 5)]
)
def test_a_change_of_any_part(field: str, value: Any):
    here, there = logs()
    changed = shaped(6, SPEC)._replace(headers=[("a", None)])
    after = changed._replace(**{field: value})
    here[0][3], there[0][3] = (
        Seen(9, one[1], digest(*one[1:]), digest(None, *one[2:]), "k") for one in (changed, after)
    )
    assert found(compare_logs(here, there)) == {Kind.CHANGED: 1}


def test_null_and_empty_are_not_the_same():
    assert len({digest(1, key, value, []) for key in (None, b"") for value in (None, b"")}) == 4
    assert digest(1, None, None, [("a", None)]) != digest(1, None, None, [("a", b"")])


def test_a_provenance_header_that_lies():
    here, there = logs()
    for partition, log in there.items():
        there[partition] = [
            one._replace(hop=Origin("id", "t", partition, before.offset, 1))
            for one, before in zip(log, here[partition], strict=True)
        ]
    assert compare_logs(here, there, hops=1).clean
    there[0][2] = there[0][2]._replace(hop=Origin("id", "t", 0, 7, 1))
    there[0][3] = there[0][3]._replace(hop=None)
    assert found(compare_logs(here, there, hops=1)) == {Kind.MISPLACED: 2}


@given(st.integers(0, 2**32), st.integers(0, 5), st.integers(0, 5))
def test_any_mixture_of_losses_and_duplicates_is_counted_exactly(seed: int, losses: int, doubles: int):
    dice = random.Random(seed)
    here, there = logs(60)
    for _ in range(losses):
        log = there[dice.randrange(2)]
        log.pop(dice.randrange(len(log)))
    for _ in range(doubles):
        log = there[dice.randrange(2)]
        at = dice.randrange(len(log))
        log.insert(dice.randrange(at + 1, len(log) + 1), log[at])
    report = compare_logs(here, there)
    assert (report.count(Kind.MISSING), report.count(Kind.DOUBLED)) == (losses, doubles)
    assert len(report.findings) == losses + doubles


def test_the_same_spec_gives_the_same_records_and_every_shape():
    shapes = [shaped(number, Spec(large_every=100, huge_every=300)) for number in range(300)]
    assert shapes == [shaped(number, Spec(large_every=100, huge_every=300)) for number in range(300)]
    assert len({one.timestamp for one in shapes}) == 300
    sizes = [len(one.value or b"") for one in shapes]
    assert (sizes.count(900_000), sizes.count(5_000_000)) == (3, 1)
    assert {(one.key is None, one.value is None) for one in shapes} == {
        (a, b) for a in (True, False) for b in (True, False)
    }
    assert max(len(one.headers) for one in shapes) > 100
    assert all(one.key is not None for one in (shaped(at, Spec(keyed=True)) for at in range(200)))
