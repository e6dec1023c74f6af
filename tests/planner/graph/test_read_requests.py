"""What is read in detail, once the names are known."""

import pytest

from planner.graph.expansion import EFFECTIVE, read_requests
from planner.model.observed import ClusterDetailsRequest
from planner.model.topology import Flow, Topic, Topology
from runtime.contract.spec.flow import ConfigsSpec, GroupsSpec
from runtime.contract.spec.rename import Template
from tests.planner.graph.build import flow, rule, seen, topic, topology

PREFIX = Template("{source}.{topic}")
NAMES = {"dc1": "a b __consumer_offsets", "dc2": "own dc1.a", "dc3": "x"}


def requested(of: Topology, **clusters: object) -> dict[str, ClusterDetailsRequest]:
    return read_requests(of, seen(**(clusters or NAMES)))


def configs(*topics: str, more: frozenset[str] = frozenset()) -> dict[str, frozenset[str]]:
    return dict.fromkeys(topics, EFFECTIVE | more)


def test_both_ends_of_what_is_copied_and_what_is_declared_there_or_not() -> None:
    parts = (flow("dc1>dc2", (r"[ab]", "later"), rename=PREFIX), topic("dc3/new", vendor_key="1"))
    assert requested(topology(*parts)) == {
        "dc1": ClusterDetailsRequest(configs("a", "b", "later"), denied_groups=True, group_kinds=True),
        "dc2": ClusterDetailsRequest(configs("dc1.a", "dc1.b", "dc1.later")),
        "dc3": ClusterDetailsRequest(configs("new", more=frozenset({"vendor.key"}))),
    }


def test_what_could_not_be_listed_is_not_asked_again() -> None:
    of = topology(flow("dc1>dc2", "a"), flow("dc2>dc3", "a"))
    assert requested(of, dc1="a", dc2=None, dc3=None) == {
        "dc1": ClusterDetailsRequest(configs("a"), denied_groups=True, group_kinds=True)
    }


def test_all_values_where_all_are_mirrored() -> None:
    details = requested(topology(flow("dc1>dc2", "a", configs=ConfigsSpec("all"))))
    assert [details[name].configs["a"] is None for name in ("dc1", "dc2")] == [True, False]


@pytest.mark.parametrize(
    ("part", "clusters"),
    [
        (flow("dc1>dc2"), set()),
        (flow("dc1>dc2", acls_sync=True), {"dc1", "dc2"}),
        (flow("dc1>dc2", protect="acl"), {"dc2"}),
        (rule("dc3 ALLOW User:a READ a"), {"dc3"}),
    ],
)
def test_acls_where_one_is_wanted(part: Flow | Topic, clusters: set[str]) -> None:
    details = requested(topology(part))
    assert {name for name, one in details.items() if one.acls} == clusters


@pytest.mark.parametrize(
    ("groups", "names"),
    [
        (GroupsSpec((".*", "app")), {"app"}),
        (GroupsSpec(("app",), sync=False), set()),
        (GroupsSpec((".*",)), set()),
    ],
)
def test_groups_that_are_named(groups: GroupsSpec, names: set[str]) -> None:
    details = requested(topology(flow("dc1>dc2", "a", groups=groups)))
    assert details["dc1"].groups == names
