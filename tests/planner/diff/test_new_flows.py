"""What a plan shows of a new flow: its groups, why this provenance, and the names that a failback undoes."""

from dataclasses import replace

import pytest

from planner.diff import diff
from planner.diff.values import displayed
from planner.graph import expand
from planner.model.observed import Observed
from planner.model.plan import FieldChange
from planner.model.topology import Flow, FlowState, Groups, Provenance, Selection
from runtime.contract.spec.rename import Template
from tests.planner.graph.build import cluster, flow, observed, topology

PREFIXED = flow("there=dc1>dc2", r"shop\..*", rename=Template("{source}.{topic}"))
FAILED_OVER = replace(PREFIXED, state=FlowState.FAILED_OVER)


def shown(name: str, over: Observed, *flows: Flow) -> dict[str, FieldChange]:
    declared = topology(*flows)
    changes = diff(expand(declared, over), over, declared)
    (one,) = [one for one in changes if str(one.address) == f"flow.{name}"]
    return {field.key: field for field in one.fields}


def test_a_failback_shows_the_names_that_come_back() -> None:
    over = observed(cluster("dc1", "shop.orders"), cluster("dc2", "dc1.shop.orders", "dc1.shop.new"))

    fields = shown("back", over, FAILED_OVER, flow("back=dc2>dc1", reverse_of="there"))

    assert fields["topics"].new == {"dc1.shop.new": "shop.new", "dc1.shop.orders": "shop.orders"}
    assert "rename" not in fields
    assert "topics.include" not in fields


def test_many_names_are_counted() -> None:
    names = [f"shop.t{number:02}" for number in range(25)]
    over = observed(cluster("dc1", *names), cluster("dc2", *(f"dc1.{name}" for name in names)))

    field = shown("back", over, FAILED_OVER, flow("back=dc2>dc1", reverse_of="there"))["topics"]
    value = displayed(field.path, field.new)

    assert isinstance(value, tuple)
    assert len(value) == 21
    assert value[-1] == "5 more"


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        (Groups(), ".*, synced every 5s, exact"),
        (Groups(Selection(("a", "b"), ("c",)), every_ms=1_500), "a, b without c, synced every 1500ms, exact"),
        (Groups(sync=False), "not synced"),
    ],
)
def test_group_sync_is_shown(groups: Groups, text: str) -> None:
    fields = shown("f", observed(cluster("dc1", "a"), cluster("dc2")), flow("f=dc1>dc2", "a", groups=groups))

    assert displayed(("groups",), fields["groups"].new) == text


BOTH = observed(cluster("dc1", "a"), cluster("dc2", "a"), cluster("dc3", "a"))


@pytest.mark.parametrize(
    ("flows", "mode", "reason"),
    [
        ([flow("f=dc1>dc2", "a")], "off", "auto: no flow copies these topics back to dc1"),
        (
            [flow("f=dc1>dc2", "a"), flow("g=dc2>dc1", "a")],
            "batch",
            "auto: dc1 and dc2 copy topics to each other under one name",
        ),
        (
            [flow("f=dc1>dc2", "a"), flow("g=dc2>dc3", "a"), flow("h=dc3>dc1", "a")],
            "headers",
            "auto: records can loop over more than two clusters",
        ),
        (
            [flow("f=dc1>dc2", "a"), flow("g=dc2>dc1", "a", provenance=Provenance.HEADERS)],
            "headers",
            "auto: a flow of the same loop needs headers",
        ),
        ([flow("f=dc1>dc2", "a", provenance=Provenance.OFF)], "off", ""),
    ],
)
def test_provenance_says_why(flows: list[Flow], mode: str, reason: str) -> None:
    field = shown("f", BOTH, *flows)["provenance"]

    assert (field.new, field.note) == (mode, reason)


def test_the_provenance_of_a_failback_says_why() -> None:
    over = observed(cluster("dc1", "shop.a"), cluster("dc2", "dc1.shop.a"))

    field = shown("back", over, FAILED_OVER, flow("back=dc2>dc1", reverse_of="there"))["provenance"]

    assert (field.new, field.note) == ("batch", "auto: what came from dc1 is not copied back")
