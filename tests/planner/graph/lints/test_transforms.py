"""What a transform means for failback, for the job's place, and for its slots."""

from dataclasses import replace
from typing import Any

from planner.graph import lint_offline
from planner.graph.routes import router_of
from planner.model.topology import Flow, FlowState, Format, Job, RecordFormat, Topology, Transform
from planner.model.topology.transforms import OnBadRecord
from runtime.contract.spec.rename import Template
from tests.planner.graph.build import flow, topology

JSON = Format(RecordFormat.JSON, "email STRING, card STRING")
MASK = Transform(value=JSON, set={"value.email": "'x'"}, drop=("value.card",))
FILTER = Transform(where="true")


def linted(of: Topology) -> list[str]:
    codes = ("failback-lossy", "raw-values-cross", "transform-slots")
    return [f"{one.code} {one.address}" for one in lint_offline(of) if one.code in codes]


def test_a_quarantine_takes_raw_values_across_the_border() -> None:
    """Only where the transform hides something: else the destination gets every record anyway."""
    for transform, warned in (
        (replace(MASK, on_bad_record=OnBadRecord.QUARANTINE), True),
        (replace(FILTER, on_bad_record=OnBadRecord.QUARANTINE), True),
        (Transform(value=JSON, on_bad_record=OnBadRecord.QUARANTINE), False),
        (MASK, False),
    ):
        found = lint_offline(topology(flow("f=dc1>dc2", transform=transform, job="at-dc1")))
        assert [one.address for one in found if one.code == "raw-values-quarantined"] == ["flow.f"] * warned


def quarantining(name: str, **more: Any) -> Flow:
    return flow(name, transform=replace(FILTER, on_bad_record=OnBadRecord.QUARANTINE), **more)


def test_a_quarantine_has_a_name_that_no_flow_copies_into() -> None:
    for topic, copied, what in (
        ("orders", "orders.quarantine", "is the quarantine topic of dc2/orders, and flow.g copies"),
        ("o" * 245, "other", "a topic's name has at most 249 characters"),
        ("orders", "other", None),
    ):
        flows = [quarantining("f=dc1>dc2", include=(topic,)), flow("g=dc3>dc2", include=(copied,))]
        found = [one for one in lint_offline(topology(*flows)) if one.code == "quarantine-name"]
        assert len(found) == (what is not None)
        assert all(what is not None and what in one.summary for one in found)


def test_no_pattern_takes_a_quarantine_topic_unless_it_is_written_out() -> None:
    """At dc2, orders.quarantine holds bad records of the flow: it is no data of dc2."""
    flows = [
        quarantining("f=dc1>dc2", include=("orders",)),
        flow("on=dc2>dc3", include=(".*",)),
        flow("named=dc2>dc3", include=(".*", "orders.quarantine"), rename=Template("named.{topic}")),
        flow("other=dc3>dc1", include=(".*",)),
    ]
    router = router_of(topology(*flows))
    taken = {
        one: router.destination_topic(one, "orders.quarantine") is not None
        for one in ("on", "named", "other")
    }
    assert taken == {"on": False, "named": True, "other": True}


def back(transform: Transform) -> list[Flow]:
    return [
        flow("there=dc1>dc2", transform=transform, job="j", state=FlowState.PROMOTED),
        flow("home=dc2>dc1", reverse_of="there"),
    ]


def test_a_failback_over_a_flow_that_changes_values_is_refused() -> None:
    assert linted(topology(*back(MASK))) == ["failback-lossy flow.home"]
    assert linted(topology(*back(FILTER))) == []


def test_raw_values_cross_the_border_where_the_job_is_the_destinations() -> None:
    assert linted(topology(flow("f=dc1>dc2", transform=MASK))) == ["raw-values-cross flow.f"]
    assert linted(topology(flow("f=dc1>dc2", transform=MASK, job="at-dc1"))) == []
    assert linted(topology(flow("f=dc1>dc2", transform=FILTER))) == []


def test_each_flow_with_a_transform_needs_a_slot() -> None:
    flows = [flow(f"{name}=dc1>dc2", transform=FILTER, job="j") for name in "ab"]
    raw = flow("raw=dc1>dc2", job="j")
    assert linted(topology(*flows, jobs={"j": Job("j", master="local[2]")})) == []
    assert linted(topology(*flows, raw, jobs={"j": Job("j", master="local[2]")})) == ["transform-slots job.j"]
