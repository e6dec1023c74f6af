"""What is read in detail, once the names are known."""

import pytest

from planner.graph import ClusterReadRequest, read_request_of
from planner.graph.expansion import EFFECTIVE
from planner.model.topology import Flow, Topic
from runtime.contract.spec.flow import ConfigsSpec, GroupsSpec
from runtime.contract.spec.rename import Template
from tests.planner.graph.build import flow, rule, topic, topology

PREFIX = Template("{source}.{topic}")
NAMES = {"dc1": ["a", "b", "__consumer_offsets"], "dc2": ["own", "dc1.a"], "dc3": ["x"]}


def test_every_cluster_is_asked_for_its_names_and_its_registry() -> None:
    assert read_request_of(topology(topic("dc1/a"))).clusters == ("dc1", "dc2", "dc3")


def test_both_ends_of_what_is_copied_and_what_is_declared_there_or_not() -> None:
    parts = (flow("dc1>dc2", (r"[ab]", "later"), rename=PREFIX), topic("dc3/new", vendor_key="1"))
    details = read_request_of(topology(*parts)).details(NAMES)
    assert details == {
        "dc1": ClusterReadRequest(frozenset({"a", "b", "later"}), denied_groups=True, group_kinds=True),
        "dc2": ClusterReadRequest(frozenset({"dc1.a", "dc1.b", "dc1.later"})),
        "dc3": ClusterReadRequest(frozenset({"new"}), keys=EFFECTIVE | {"vendor.key"}),
    }


def test_what_could_not_be_listed_is_not_asked_again_and_strangers_are_not_asked_at_all() -> None:
    of = topology(flow("dc1>dc2", "a"), flow("dc2>dc3", "a"))
    found = read_request_of(of).details({"dc1": ["a"], "elsewhere": ["a"]})
    assert found == {"dc1": ClusterReadRequest(frozenset({"a"}), denied_groups=True, group_kinds=True)}


def test_all_values_where_all_are_mirrored() -> None:
    of = topology(flow("dc1>dc2", "a", configs=ConfigsSpec("all")))
    details = read_request_of(of).details(NAMES)
    assert [details[name].every_key for name in ("dc1", "dc2")] == [{"a"}, set()]


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
    details = read_request_of(topology(part)).details(NAMES)
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
    details = read_request_of(topology(flow("dc1>dc2", "a", groups=groups))).details(NAMES)
    assert details["dc1"].groups == names
