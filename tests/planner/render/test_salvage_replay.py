"""What a person gets to know of a replay, before and after."""

from __future__ import annotations

from planner.render.reports.comparison import done, planned, replay_json
from runtime.contract.views.records_view import ReplayedPartition, SalvageView
from tests.planner.render.test_salvage import partition, record, seen


def before(found: SalvageView, to: str | None = None) -> str:
    return "\n".join(one.plain for one in planned(found, to, None))


def after(*parts: ReplayedPartition) -> str:
    return "\n".join(one.plain for one in done(parts, None))


def test_what_will_be_done() -> None:
    shown = before(seen(partition(record(), records=31, lost=4), partition(partition=1)))
    assert "31 records of dc1 will be copied into dc2" in shown
    assert "orders-0" in shown
    assert "retention deleted 4 offsets: they are lost" in shown
    assert "orders-1" not in shown


def test_into_another_topic() -> None:
    assert "aside-0" in before(seen(partition(record())), "aside")


def test_what_can_t_be_read_is_left_out() -> None:
    shown = before(seen(partition(record(), unread="it was recreated")))
    assert "orders-0 is left out: it was recreated" in shown
    assert "Nothing is left to replay from dc1 into dc2." in shown


def test_nothing_is_left_but_what_is_lost_is_said() -> None:
    shown = before(seen(partition(lost=4)))
    assert "orders-0: retention deleted 4 offsets: they are lost" in shown
    assert "Nothing is left to replay" in shown


def test_what_was_done() -> None:
    shown = after(ReplayedPartition("orders", 0, "orders", 31), ReplayedPartition("orders", 1, "orders", 1))
    assert shown.endswith("32 records replayed.")


def test_what_was_not_done_to_the_end() -> None:
    shown = after(ReplayedPartition("orders", 0, "orders", 31, "no leader"))
    assert "no leader" in shown
    assert shown.endswith("31 records replayed; 1 partition not to the end.")


def test_json() -> None:
    found = replay_json(seen(partition(record())), "aside", [ReplayedPartition("orders", 0, "aside", 1)])
    (one,) = found["planned"]
    assert (one["into"], one["records"], one["first_offset"]) == ("aside", 1, 1_311)
    assert found["replayed"] == [
        {"topic": "orders", "partition": 0, "records": 1, "into": "aside", "why": ""}
    ]
    assert found["records"] == 1
