"""What a person reads of a comparison."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from planner.render.reports.comparison import sentence, verify_json, verify_screen
from runtime.contract.views.records_view import (
    Difference,
    UncomparableRange,
    VerificationReport,
    VerifiedPartition,
)


def partition(**changes: Any) -> VerifiedPartition:
    facts: dict[str, Any] = {
        "topic": "orders",
        "partition": 1,
        "destination_topic": "dc1.orders",
        "low": 0,
        "end": 1_310,
        "equal_up_to": 1_310,
        "compared": 1_204,
        "kept_back": 0,
        "given_up": 0,
        "others": 0,
        "compacted": 0,
        "differences": [],
        "more": False,
        "not_comparable": [],
    }
    return VerifiedPartition(**{**facts, **changes})


def seen(*partitions: VerifiedPartition, sample: float = 100.0) -> VerificationReport:
    return VerificationReport(
        flow="one",
        source="dc1",
        destination="dc2",
        at_ms=0,
        took_ms=4_100,
        sample=sample,
        partitions=list(partitions),
    )


def difference(**changes: Any) -> Difference:
    facts: dict[str, Any] = {
        "kind": "missing",
        "source_offset": 417,
        "expected": 402,
        "destination_offset": None,
        "key": "'k'",
    }
    return Difference(**{**facts, **changes})


def text(found: VerificationReport, width: int | None = None) -> str:
    return "\n".join(line.plain for line in verify_screen(found, width))


def test_equal() -> None:
    shown = text(seen(partition()))
    assert "Equal: 1,204 records compared in 4.1 s." in shown
    assert verify_json(seen(partition()))["equal"] is True


def test_a_sample_says_its_share() -> None:
    assert "a sample of 5%" in text(seen(partition(), sample=5.0))


def test_what_is_not_comparable_is_never_called_equal_alone() -> None:
    gone = UncomparableRange(low=0, end=50, why="retention passed at dc1")
    shown = text(seen(partition(not_comparable=[gone])))
    assert "orders-1 is not comparable from 0 to 49: retention passed at dc1" in shown
    assert "Equal, as far as comparable" in shown
    assert "Nothing to compare." in text(seen(partition(compared=0)))


def test_what_was_not_read_is_no_equality() -> None:
    found = seen(partition(unread="orders at dc2 is not the topic that was copied: it was recreated"))
    assert "not everything could be compared" in text(found)
    assert verify_json(found)["equal"] is False


def test_only_the_first_differences_of_a_partition_are_shown() -> None:
    found = seen(partition(differences=[difference()] * 12, equal_up_to=417))
    assert text(found).count("missing: ") == 10
    assert "and 2 more" in text(found)
    assert "Different: 12 differences" in text(found)


def test_replayed_records_have_a_count_of_their_own() -> None:
    found = seen(partition(replayed=17))
    assert "17 records replayed by salvage" in text(found)
    assert verify_json(found)["partitions"][0]["replayed"] == 17
    assert verify_json(found)["equal"] is True


@pytest.mark.parametrize("width", [40, 80])
def test_it_fits(width: int) -> None:
    table = list(verify_screen(seen(partition(kept_back=3)), width))[:2]
    assert all(len(line.plain) <= width for line in table)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (difference(), "missing: source offset 417 (key 'k') is not at offset 402 of dc2"),
        (difference(expected=None, why="w"), "missing: source offset 417 (key 'k') is not at dc2: w"),
        (
            difference(source_offset=50, key="", expected=None, why="w"),
            "missing: source offset 50 is not at dc2: w",
        ),
        (
            difference(kind="doubled", destination_offset=9),
            "doubled: source offset 417 (key 'k') is at offset 9 at dc2 once more",
        ),
        (
            difference(kind="swapped", destination_offset=9),
            "swapped: source offset 417 (key 'k') is at offset 9 at dc2, not at 402",
        ),
        (
            difference(kind="changed", destination_offset=402, fields=["key", "value"], why="w"),
            "changed: key and value of source offset 417 (key 'k'), offset 402 at dc2: w",
        ),
        (
            difference(kind="moved", destination_offset=9, why="w"),
            "moved: source offset 417 (key 'k') is at offset 9 at dc2: w",
        ),
        (
            difference(kind="foreign", destination_offset=9, why="not from the source"),
            "foreign: offset 9 at dc2 (key 'k') is not from the source",
        ),
        (
            difference(kind="doubled", destination_offset=417, file="orders/a.jsonl"),
            "doubled: source offset 417 (key 'k') is at offset 417 in orders/a.jsonl at dc2 once more",
        ),
        (
            difference(kind="damaged", key="", file="orders/a.log", why="source offsets 417 to 419: w"),
            "damaged: orders/a.log at dc2, source offsets 417 to 419: w",
        ),
    ],
)
def test_a_difference_is_a_sentence(found: Difference, words: str) -> None:
    assert sentence(found, seen()) == words


def test_positions_in_files_are_in_bytes_or_rows() -> None:
    found = difference(
        kind="changed", key="null", destination_offset=9, fields=["value"], why="w", file="a.log"
    )
    report = structs.replace(seen(partition(topic="a.log", differences=[found])), unit="bytes")
    assert sentence(found, report) == "changed: value of source byte 417, offset 9 at dc2: w"
    assert "BYTES" in text(report).splitlines()[1]
    assert verify_json(report)["unit"] == "bytes"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            difference(kind="swapped", key="null", expected=None, destination_offset=5, why="not in order"),
            "swapped: source row 417 is at offset 5 at dc2, not in order",
        ),
        (
            difference(kind="foreign", key="null", destination_offset=9, why="not from the source"),
            "foreign: offset 9 at dc2 is not from the source",
        ),
        (difference(expected=None), "missing: source row 417 (key 'k') is not at dc2"),
    ],
)
def test_a_difference_of_a_file_names_keys_that_rows_have(found: Difference, words: str) -> None:
    assert sentence(found, structs.replace(seen(), unit="rows")) == words


def test_a_record_is_missing_in_files_without_a_place_in_one() -> None:
    report = structs.replace(seen(), in_files=True)
    words = "missing: source offset 417 (key 'k') is in no file at dc2"
    assert sentence(difference(), report) == words
