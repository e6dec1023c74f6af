"""What a transform means for failback, for the job's place, and for its slots."""

from planner.graph import lint_offline
from planner.model.topology import Flow, FlowState, Format, Job, RecordFormat, Topology, Transform
from tests.planner.graph.build import flow, topology

JSON = Format(RecordFormat.JSON, "email STRING, card STRING")
MASK = Transform(value=JSON, set={"value.email": "'x'"}, drop=("value.card",))
FILTER = Transform(where="true")


def linted(of: Topology) -> list[str]:
    codes = ("failback-lossy", "raw-values-cross", "transform-slots")
    return [f"{one.code} {one.address}" for one in lint_offline(of) if one.code in codes]


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
