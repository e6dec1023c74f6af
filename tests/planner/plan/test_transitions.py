"""Which state of a flow may follow which; a stale file undoes no failover."""

from dataclasses import replace

import pytest

from planner.diff import diff
from planner.expand import expand
from planner.model.diagnostic import ExitCode, worst
from planner.model.plan import Plan
from planner.model.topology import Flow, FlowState, StartAt, Topology
from planner.plan import make_plan
from planner.plan.transitions import may_follow
from tests.fakes.states import flow, topology
from tests.planner.plan.jobs import applied

ACTIVE, PAUSED, PROMOTED, FAILED = (
    FlowState.ACTIVE,
    FlowState.PAUSED,
    FlowState.PROMOTED,
    FlowState.FAILED_OVER,
)
X = flow("x")


def planned(shop: Topology, before: Topology) -> Plan:
    seen = applied(before)
    desired = expand(shop, seen)
    return make_plan(desired, seen, diff(desired, seen, shop), shop)


def refusals(after: Flow, before: FlowState, *more: Flow) -> list[str]:
    plan = planned(topology(after, *more), topology(replace(X, state=before)))
    return [one.code for one in plan.diagnostics if one.exit is ExitCode.REFUSED]


@pytest.mark.parametrize(
    ("before", "after", "legal"),
    [
        (ACTIVE, PAUSED, True),
        (PAUSED, ACTIVE, True),
        (ACTIVE, PROMOTED, True),
        (PAUSED, PROMOTED, True),
        (ACTIVE, FAILED, True),
        (PAUSED, FAILED, True),
        (PROMOTED, ACTIVE, False),
        (PROMOTED, PAUSED, False),
        (PROMOTED, FAILED, False),
        (FAILED, ACTIVE, False),
        (FAILED, PAUSED, False),
        (FAILED, PROMOTED, False),
    ],
)
def test_from_one_state_to_another(before: FlowState, after: FlowState, legal: bool) -> None:
    assert refusals(replace(X, state=after), before) == ([] if legal else ["transition"])


@pytest.mark.parametrize("before", [PROMOTED, FAILED])
def test_an_ended_flow_starts_over_only_where_it_is_told(before: FlowState) -> None:
    start = StartAt("latest")

    assert refusals(replace(X, state=ACTIVE, restart_from=start), before) == []
    assert refusals(replace(X, state=PAUSED, restart_from=start), before) == ["transition"]


@pytest.mark.parametrize(("way_back", "legal"), [(PROMOTED, True), (FAILED, False)])
def test_or_over_a_promoted_way_back(way_back: FlowState, legal: bool) -> None:
    back = flow(
        "x-back", source_cluster="dc2", destination_cluster="dc1", job="dc1", reverse_of="x", state=way_back
    )

    assert ("transition" in refusals(X, FAILED, back)) is not legal


def test_a_file_that_is_out_of_date_is_told_so() -> None:
    plan = planned(topology(X), topology(replace(X, state=FAILED)))

    (one,) = [one for one in plan.diagnostics if one.code == "transition"]
    assert str(one).startswith("flow.x: was failed_over, and can't become active — write state: failed_over")
    assert "restart_from" in one.way_out
    assert worst(plan.diagnostics) is ExitCode.REFUSED
    assert not plan.applyable


@pytest.mark.parametrize(
    ("state", "legal"),
    [
        (ACTIVE, "from active a flow becomes paused, promoted or failed_over"),
        (PAUSED, "from paused a flow becomes active, promoted or failed_over"),
        (PROMOTED, "from promoted a flow becomes active, over a promoted way back"),
        (FAILED, "from failed_over a flow becomes active, over a promoted way back"),
    ],
)
def test_the_legal_ones_are_named(state: FlowState, legal: str) -> None:
    assert may_follow(state).startswith(legal)
