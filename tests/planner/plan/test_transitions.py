"""Which state of a flow may follow which; a stale file undoes no failover."""

from dataclasses import replace

import pytest

from planner.diff import diff
from planner.graph import expand
from planner.model.diagnostic import ExitCode, worst
from planner.model.observed import Observed, ObservedCluster
from planner.model.plan import Plan
from planner.model.topology import Flow, FlowState, StartAt, Topology
from planner.plan import make_plan
from planner.plan.transitions import may_follow
from runtime.contract.records.ledger import Generation
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


def test_or_over_the_same_start_never_twice() -> None:
    """A file from before the second failover says where it started over after the first."""
    start = StartAt("latest")
    before = topology(replace(X, state=FAILED, restart_from=start))

    plan = planned(topology(replace(X, restart_from=start)), before)

    assert [one.code for one in plan.diagnostics if one.exit is ExitCode.REFUSED] == ["transition"]


BACK = flow("x-back", source_cluster="dc2", destination_cluster="dc1", job="dc1", reverse_of="x")


def turned(
    before: tuple[FlowState, FlowState],
    after: tuple[FlowState, FlowState],
    lives: tuple[tuple[int, int], tuple[int, int]] = ((0, -1), (0, 0)),
) -> list[str]:
    """What is refused where x and its way back were in two states and come to two others. `lives`: the life
    of each, and by which life of the other it began.
    """
    shop = topology(*(replace(one, state=state) for one, state in zip((X, BACK), after, strict=True)))
    seen = applied(
        topology(*(replace(one, state=state) for one, state in zip((X, BACK), before, strict=True)))
    )
    clusters = dict(seen.clusters)
    for one, name, state, (life, began) in zip(("x", "x-back"), ("dc2", "dc1"), before, lives, strict=True):
        generation = Generation(
            number=1,
            job="j",
            state=state.value,
            driver="d",
            transactional_ids=[],
            source_cluster_id="",
            destination_cluster_id="",
            written_at=0,
            life=life,
            after=began,
        )
        cluster = clusters[name]
        assert isinstance(cluster, ObservedCluster)
        clusters[name] = replace(cluster, generations={one: generation})
    seen = Observed(clusters)
    desired = expand(shop, seen)
    plan = make_plan(desired, seen, diff(desired, seen, shop), shop)
    return [str(one.address) for one in plan.diagnostics if one.exit is ExitCode.REFUSED]


@pytest.mark.parametrize("ended", [PROMOTED, FAILED])
def test_or_over_a_way_back_that_is_promoted_with_it(ended: FlowState) -> None:
    assert turned((ended, ACTIVE), (ACTIVE, PROMOTED)) == []


def test_or_over_one_that_was_promoted_just_before() -> None:
    assert turned((FAILED, PROMOTED), (ACTIVE, PROMOTED)) == []


def test_never_over_one_that_was_promoted_before_it_failed_over_again() -> None:
    second = ((1, 0), (0, 0))
    assert turned((FAILED, PROMOTED), (ACTIVE, PROMOTED), second) == ["flow.x"]
    assert turned((FAILED, PROMOTED), (FAILED, ACTIVE), second) == []  # it goes home a second time


def test_never_over_one_that_did_not_run() -> None:
    assert refusals(X, FAILED, replace(BACK, state=PROMOTED)) == ["transition"]


def test_a_file_from_before_the_switch_does_not_undo_it() -> None:
    assert turned((ACTIVE, PROMOTED), (FAILED, ACTIVE), ((1, 0), (0, 0))) == ["flow.x-back"]
    assert turned((FAILED, PROMOTED), (FAILED, ACTIVE)) == ["flow.x-back"]


def test_the_other_side_is_lost_while_all_comes_home() -> None:
    """Then x is the way back of its own way back."""
    assert turned((FAILED, ACTIVE), (FAILED, FAILED)) == []
    assert turned((FAILED, FAILED), (ACTIVE, FAILED)) == []


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
        (PROMOTED, "from promoted a flow becomes active, over a promoted reverse flow"),
        (FAILED, "from failed_over a flow becomes active, over a promoted reverse flow"),
    ],
)
def test_the_legal_ones_are_named(state: FlowState, legal: str) -> None:
    assert may_follow(state).startswith(legal)
