"""Where salvaged records may go."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.batch.spec import QuarantineLimit
from runtime.contract.records.provenance import ClusterPartition, ClusterTopic
from runtime.contract.spec.transform import TransformSpec
from runtime.contract.views.records_view import SalvagedPartition
from runtime.replay.request import ReplayPartition, ReplayQuarantine, ReplayTarget, parts, unfit
from runtime.replay.task import rewrite_spec
from tests.runtime.slot.world import flow_spec

ROOMY = ReplayTarget(4, 1_000, appends=False)


def found(partition: int = 1, *, begun: bool = True) -> SalvagedPartition:
    facts: dict[str, Any] = dict.fromkeys(
        ("first_offset", "last_offset", "first_timestamp_ms", "last_timestamp_ms")
    )
    return SalvagedPartition(
        topic="orders",
        partition=partition,
        destination_topic="dc1.orders",
        stretches=[],
        records=3,
        bytes=9,
        kept_back=0,
        lost=0,
        begun=begun,
        first=[],
        **facts,
    )


@pytest.mark.parametrize(
    ("one", "to", "known", "problem"),
    [
        (found(), None, {"dc1.orders": ROOMY}, None),
        (found(), "aside", {"aside": ROOMY}, None),
        (found(), None, {}, "there is no topic dc1.orders"),
        (found(), "aside", {"dc1.orders": ROOMY}, "there is no topic aside"),
        (
            found(4),
            None,
            {"dc1.orders": ROOMY},
            "dc1.orders has 4 partitions, and there is no dc1.orders-4 for orders-4",
        ),
        (found(begun=False), "aside", {"aside": ROOMY}, "there is no topic dc1.orders"),
        (
            found(),
            "aside",
            {"aside": ReplayTarget(4, 1_000, appends=True)},
            "aside would take the time of the replay for the records' own",
        ),
        (found(), "__repl.ledger", {"__repl.ledger": ROOMY}, "__repl.ledger is not for records of a flow"),
    ],
    ids=[
        "its own",
        "another",
        "its own is missing",
        "another is missing",
        "too few partitions",
        "never begun: the ledger needs its own too",
        "append time",
        "the product's own",
    ],
)
def test_what_does_not_fit_is_said(
    one: SalvagedPartition, to: str | None, known: dict[str, ReplayTarget], problem: str | None
) -> None:
    assert list(unfit([one], to, known)) == ([problem] if problem else [])


def test_a_part_knows_its_mirror_and_where_it_goes() -> None:
    (part,) = parts([found()], "aside", {"aside": ROOMY})
    assert part == ReplayPartition("orders", 1, "dc1.orders", "aside", 1_000, begun=True)


def test_bad_records_of_a_flow_that_quarantines_need_its_topic() -> None:
    """The partition is that of the mirror, modulo the partitions of the quarantine."""
    transform = TransformSpec(where="true", on_bad_record="quarantine")
    known = {"aside": ROOMY}
    topic = "dc1.orders.quarantine"
    assert list(unfit([found()], "aside", known, transform)) == [
        f"there is no topic {topic}, which takes bad records"
    ]
    known[topic] = ReplayTarget(3, 2_000, appends=True)
    assert unfit([found(3)], "aside", known, transform) == {}
    (part,) = parts([found(3)], "aside", known, transform)
    assert part.quarantine == ReplayQuarantine(topic, 0, 2_000)
    spec = rewrite_spec(flow_spec("one", transform=transform), part, "id-1", "id-2")
    assert spec.quarantine == QuarantineLimit("one", 2_000)
    (part,) = parts([found(3)], "aside", known, TransformSpec(where="true"))
    assert part.quarantine is None


def test_the_quarantine_of_a_replay_takes_no_other_records() -> None:
    quarantining = TransformSpec(where="true", on_bad_record="quarantine")
    topic = "dc1.orders.quarantine"
    known = {topic: ROOMY, "dc1.orders": ROOMY}
    assert unfit([found()], topic, known, quarantining) == {
        f"{topic} takes the bad records of this replay": "name another topic with --to"
    }
    assert unfit([found()], topic, known, TransformSpec(where="true")) == {}


def test_the_header_is_added_and_what_came_from_there_stays_away_whatever_the_flow_s_provenance() -> None:
    part = ReplayPartition("orders", 1, "dc1.orders", "aside", 1_000, begun=True)
    spec = rewrite_spec(flow_spec("one", provenance="off"), part, "id-1", "id-2")
    assert spec.provenance == ClusterPartition("id-1", "orders", 1)
    assert spec.home == ClusterTopic("id-2", "dc1.orders")
    assert not spec.native_only
