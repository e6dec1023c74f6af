"""Which flows come home to a cluster, and what other flows bring home already."""

from dataclasses import replace

from planner.graph.routes import Failback, pending_failbacks, resumed_failbacks, without_covered
from planner.model.topology import Flow, FlowState, Selection
from runtime.contract.spec.rename import Template
from tests.planner.graph.build import flow, topology

ACTIVE, PAUSED, PROMOTED, FAILED_OVER = FlowState
THERE = flow("f=dc1>dc2", "a")
BACK = flow("f-back=dc2>dc1", reverse_of="f")


def names(found: list[Failback]) -> list[tuple[str, str, bool]]:
    return [(one.flow.name, one.name, one.back is not None) for one in found]


def test_flows_out_of_the_cluster_that_ended_come_home() -> None:
    shop = topology(
        replace(THERE, state=FAILED_OVER),
        flow("g=dc1>dc2", "b", state=PROMOTED),
        flow("h=dc1>dc2", "c"),
        flow("i=dc2>dc1", "d", state=PROMOTED),
    )

    assert names(pending_failbacks(shop, "dc1")) == [("f", "f-back", False), ("g", "g-back", False)]


def test_by_the_job_that_is_there() -> None:
    shop = topology(replace(THERE, state=FAILED_OVER), flow("i=dc2>dc1", "d", job="into-dc1"))

    assert [one.job for one in pending_failbacks(shop, "dc1")] == ["into-dc1"]
    assert [one.job for one in pending_failbacks(topology(replace(THERE, state=FAILED_OVER)), "dc1")] == [""]


def test_by_the_way_home_that_is_there() -> None:
    shop = topology(replace(THERE, state=FAILED_OVER), replace(BACK, name="x"))

    assert names(pending_failbacks(shop, "dc1")) == [("f", "x", True)]


def test_a_promoted_way_home_is_at_home_already() -> None:
    shop = topology(THERE, replace(BACK, state=PROMOTED))

    assert pending_failbacks(shop, "dc2") == []
    assert names(resumed_failbacks(shop, "dc1")) == [("f", "f-back", True)]


def test_the_other_side_was_lost_meanwhile_so_the_flow_is_the_way_home_of_its_way_home() -> None:
    shop = topology(replace(THERE, state=FAILED_OVER), replace(BACK, state=FAILED_OVER))

    assert names(pending_failbacks(shop, "dc2")) == [("f-back", "f", True)]


def left_out(there: Flow, *others: Flow) -> tuple[tuple[str, ...], bool]:
    shop = topology(replace(there, state=FAILED_OVER), *others)
    (one,) = pending_failbacks(shop, "dc1")
    found = without_covered(one, shop, ["a.x", "b"], ["a.x", "b", "z"])
    return found.exclude, found.covered


def test_what_another_flow_brings_home_already() -> None:
    assert left_out(flow("f=dc1>dc2", ("a.x", "b")), flow("g=dc2>dc1", ("a.x", "q"))) == (("a.x", "q"), False)


def test_all_of_it() -> None:
    assert left_out(flow("f=dc1>dc2", ".*"), flow("g=dc2>dc1", ".*")) == ((".*",), True)


def test_by_name_where_the_rules_of_the_other_would_leave_out_more() -> None:
    other = flow("g=dc2>dc1", topics=Selection((".*",), ("b",)))

    assert left_out(flow("f=dc1>dc2", ("a.x", "b")), other) == (("a\\.x",), False)


def test_under_another_name_it_is_not_at_home() -> None:
    renamed = Template("{source}.{topic}")
    other = flow("g=dc2>dc1", ".*", rename=renamed)

    assert left_out(flow("f=dc1>dc2", "b", rename=renamed), other) == ((), False)
