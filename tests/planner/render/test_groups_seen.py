"""`repl offsets` and `repl locate` on a screen."""

import pytest
from msgspec.structs import replace

from planner.render.reports import groups
from runtime.contract.views.groups_view import GroupOffsetsView, GroupOffsetView, LocatedRecord, LocateResult

WHY = "the flow has not come that far; as of 1970-01-01T00:00:00Z"
AGAIN = "by the time of its record: some may be read again, none is skipped"
ROWS = [
    GroupOffsetView(
        topic="orders",
        partition=0,
        destination_topic="dc1.orders",
        source=250,
        translation=204,
        committed=204,
        state="translated",
        exact=False,
        by="time",
    ),
    GroupOffsetView(
        topic="orders",
        partition=1,
        destination_topic="dc1.orders",
        source=251,
        translation=None,
        committed=180,
        state="pending",
        why="the flow has not come that far",
        as_of_ms=0,
    ),
]


def seen(rows: list[GroupOffsetView], *, answers: bool = True, unsynced: str = "") -> GroupOffsetsView:
    return GroupOffsetsView(
        flow="dc1-to-dc2",
        group="billing",
        source_cluster="dc1",
        destination_cluster="dc2",
        source_answers=answers,
        source_why="" if answers else "no bootstrap broker answers",
        synced=not unsynced,
        unsynced=unsynced,
        state_there="Stable" if answers else "",
        state_here="Empty",
        partitions=rows,
    )


def test_a_group_on_a_screen() -> None:
    lines = [line.plain for line in groups.offsets_screen(seen(ROWS), None)]
    assert lines == [
        "billing over dc1-to-dc2: dc1 → dc2",
        "  at dc1: members are connected (Stable)",
        "  at dc2: no member is connected",
        "",
        "TOPIC   PARTITION  SOURCE  TRANSLATION  BY    DESTINATION  STATE       AT THE DESTINATION  WHY",
        f"orders          0     250          204  time          204  translated  dc1.orders          {AGAIN}",
        f"orders          1     251            -  -             180  pending     dc1.orders          {WHY}",
    ]


def test_a_source_that_does_not_answer_is_said() -> None:
    text = "\n".join(
        line.plain
        for line in groups.offsets_screen(seen([], answers=False, unsynced="groups.sync is off"), 80)
    )
    assert (
        "at dc1: does not answer (no bootstrap broker answers); its offsets are from the checkpoints" in text
    )
    assert "groups.sync is off: nothing is written at dc2" in text
    assert text.endswith("It committed nothing on the flow's topics.")


def test_json_has_every_field() -> None:
    document = groups.offsets_json(seen(ROWS))
    assert document["partitions"][1]["why"] == "the flow has not come that far"
    assert document["source_answers"] is True


def located(found: LocateResult, *, reverse: bool = False) -> LocatedRecord:
    return LocatedRecord(
        flow="f",
        reverse=reverse,
        cluster="dc1",
        topic="orders",
        partition=3,
        offset=42,
        timestamp_ms=None,
        other_cluster="dc2",
        other_topic="dc1.orders",
        found=found,
        other_offset=40,
        replicated_through=41,
        low=50,
    )


@pytest.mark.parametrize(
    ("found", "reverse", "text"),
    [
        (LocateResult.EXACT, False, "offset 42 of orders-3 at dc1 is offset 40 of dc1.orders-3 at dc2."),
        (LocateResult.EXACT, True, "offset 42 of orders-3 at dc1 is offset 40 of dc1.orders-3 at dc2."),
        (LocateResult.REPLAYED, True, "was replayed by salvage from offset 40 of dc1.orders-3 at dc2."),
        (LocateResult.REPLAYED, False, "was replayed by salvage to offset 40 of dc1.orders-3 at dc2."),
        (
            LocateResult.NEXT,
            False,
            "was not copied (it is no record, was aborted,",
        ),
        (
            LocateResult.NEXT,
            True,
            "was not copied by f; the next record that was came from offset 40",
        ),
        (LocateResult.END, False, "the next one will be at offset 40 of dc1.orders-3 at dc2 or later"),
        (
            LocateResult.NOT_YET,
            False,
            "not yet: offset 42 of orders-3 at dc1 is not copied; f has replicated up to",
        ),
        (LocateResult.UNMAPPED, False, "is before the offset map of f, which begins at 50."),
        (LocateResult.NO_RECORD, False, "No record of orders-3 at dc1 is as late as that."),
    ],
)
def test_a_record_in_a_sentence(found: LocateResult, reverse: bool, text: str) -> None:
    assert text in groups.location_text(located(found, reverse=reverse))


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (LocateResult.EXACT, "offset 42 of orders-3 at dc1 is record 1,042 of orders/to-lake-1.json at dc2."),
        (LocateResult.NEXT, "the next copied record, offset 40, is record 1,042 of orders/to-lake-1.json"),
    ],
)
def test_a_record_in_a_file(found: LocateResult, text: str) -> None:
    place = replace(located(found), file="orders/to-lake-1.json", record=1042)
    assert text in groups.location_text(place)


def test_what_is_before_the_start_of_a_flow_into_files() -> None:
    place = replace(located(LocateResult.UNMAPPED), in_files=True)
    assert groups.location_text(place).endswith("is before the start of f, which began at 50.")


def test_no_record_behind_it_is_in_a_file() -> None:
    place = replace(located(LocateResult.END), other_offset=None)
    assert groups.location_text(place).endswith("at dc1 was not copied, and no later record either.")
