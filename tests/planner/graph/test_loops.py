"""Where names can come home, and what the provenance of each flow comes to."""

import itertools

import pytest

from planner.graph.replication_graph import sample_name
from planner.model.topology import Flow
from runtime.contract.spec.rename import Match, Table, Template
from tests.fakes.tables import cases
from tests.planner.graph.build import expanded, flow

PREFIX = Template("{source}.{topic}")
THERE_AND_BACK = (flow("dc1>dc2"), flow("dc2>dc1"))
RING = (flow("dc1>dc2"), flow("dc2>dc3"), flow("dc3>dc1"))


@pytest.mark.parametrize(
    ("flows", "provenance"),
    [
        ((flow("dc1>dc2"),), ["off"]),
        (THERE_AND_BACK, ["batch", "batch"]),
        ((*THERE_AND_BACK, flow("dc2>dc3")), ["batch"] * 3),
        ((*THERE_AND_BACK, flow("dc2>dc3"), flow("dc3>dc2")), ["batch"] * 4),
        (RING, ["headers"] * 3),
        ((*RING, flow("dc2>dc1")), ["headers"] * 4),
        ((flow("dc1>dc2"), flow("dc2>dc3")), ["off", "off"]),
        ((flow("dc1>dc2", rename=PREFIX), flow("dc2>dc1", rename=PREFIX)), ["off", "off"]),
        ((flow("dc1>dc2", "a"), flow("dc2>dc1", "b")), ["off", "off"]),
        ((flow("dc1>dc2", "a"), flow("dc2>dc1", ("b", "a"))), ["batch", "batch"]),
        # What is not there yet may appear tomorrow.
        ((flow("dc1>dc2", "x.*"), flow("dc2>dc1", "x1")), ["batch", "batch"]),
        ((flow("dc1>dc2", ".*x"), flow("dc2>dc1", "y.*")), ["batch", "batch"]),
        # Names that change there and change back come home all the same.
        (
            (
                flow("dc1>dc2", "a", rename=Table({"a": "b"})),
                flow("dc2>dc1", "b", rename=Table({"b": "a"})),
            ),
            ["batch", "batch"],
        ),
        ((flow("dc1>dc2", rename=Match(r"a-(.*)", r"b-\1")), flow("dc2>dc1")), ["batch", "batch"]),
        # What is asked for is given, and the others of its component go along.
        ((flow("dc1>dc2", provenance="headers"), flow("dc2>dc1")), ["headers", "headers"]),
        ((flow("dc1>dc2", provenance="headers"), flow("dc2>dc3")), ["headers", "off"]),
        ((flow("dc1>dc2", provenance="batch"),), ["batch"]),
        # A component that has no loop stays off beside one that has.
        ((*THERE_AND_BACK, flow("dc2>dc3", rename=PREFIX)), ["batch", "batch", "off"]),
        # A failover must not change it.
        ((flow("dc1>dc2", state="failed_over"), flow("dc2>dc1")), ["batch", "batch"]),
    ],
)
def test_auto_comes_to(flows: tuple[Flow, ...], provenance: list[str]) -> None:
    assert [one.provenance for one in expanded(*flows, dc1="a").flows] == provenance


def test_a_cluster_that_cannot_be_read_changes_nothing() -> None:
    desired = expanded(flow("dc1>dc2", "a"), flow("dc2>dc1", "a"), dc1=None)
    assert [one.provenance for one in desired.flows] == ["batch", "batch"]


MESH = tuple(f"{one}>{other}" for one, other in itertools.permutations(("dc1", "dc2", "dc3"), 2))


@cases(
    "ends found",
    {
        # In a mesh each flow copies what was born at its source.
        "a mesh": (MESH, [("headers", True)] * 6),
        "a triangle without a loop": (
            ("dc1>dc2", "dc1>dc3", "dc2>dc3"),
            [("off", False), ("batch", True), ("batch", True)],
        ),
    },
)
def test_flows_that_meet_know_what_is_native(ends, found) -> None:
    desired = expanded(*(flow(pair) for pair in ends), dc1="a")
    assert [(one.provenance, one.native_only) for one in desired.flows] == found
    assert all(one.shared for one in desired.flows if len(ends) == 6)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (".*", "x"),
        (r"payments\..*", "payments.x"),
        (r"(eu|us)-\d+", "eu-0"),
        (r"a|b", "a"),
        (r"[a-z]+\.\w+", "a.x"),
        (r"[^-]+", "x"),
        (r"^t$", "t"),
        (r"(?:a|b)c{2}", None),
        (r"x{2}", None),
        (r"a?", "a"),
        (r"(?=a)a", None),
    ],
)
def test_a_name_for_a_regex(pattern: str, name: str | None) -> None:
    assert sample_name(pattern) == name
