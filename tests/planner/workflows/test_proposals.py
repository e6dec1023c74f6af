"""`repl init`: which flows are proposed for the topics that clusters hold."""

import pytest

from planner.config import load
from planner.model.observed import ObservedCluster, ObservedTopic
from planner.model.topology import Topology
from planner.render.topology import topology_yaml
from planner.workflows.importing import connection, own_topics, proposed_directions, proposed_topology

MANY = [f"t{number}" for number in range(21)]
CASES: dict[str, tuple[dict[str, list[str]], list[str]]] = {
    "one holds all": ({"dc1": ["orders", "events"], "dc2": []}, ["dc1>dc2"]),
    "the second holds all": ({"dc1": [], "dc2": ["orders"]}, ["dc2>dc1"]),
    "one has what the other has, and more": ({"dc1": ["orders", "events"], "dc2": ["orders"]}, ["dc1>dc2"]),
    "both have topics of their own": ({"dc1": ["orders"], "dc2": ["events"]}, ["dc1>dc2", "dc2>dc1"]),
    "nothing yet": ({"dc1": [], "dc2": []}, ["dc1>dc2"]),
    "one for several": ({"dc1": ["a"], "dc2": [], "dc3": []}, ["dc1>dc2", "dc1>dc3"]),
    "several for one": (
        {"dc1": ["a"], "dc2": ["b"], "dc3": []},
        ["dc1>dc2", "dc1>dc3", "dc2>dc1", "dc2>dc3"],
    ),
}


def observed(name: str, *topics: str) -> ObservedCluster:
    found = {topic: ObservedTopic(topic, "", ((1,),)) for topic in topics}
    return ObservedCluster(name, f"id-of-{name}", (), found)


def proposed(topics: dict[str, list[str]]) -> Topology:
    clusters = [observed(name, *names) for name, names in topics.items()]
    declared = {name: connection(name, f"{name}:9092", None) for name in topics}
    return proposed_topology("shop", declared, clusters, proposed_directions(clusters))


@pytest.mark.parametrize("name", CASES)
def test_directions(name: str, tmp_path) -> None:
    topics, expected = CASES[name]
    topology = proposed(topics)
    assert [
        f"{flow.source_cluster}>{flow.destination_cluster}" for flow in topology.flows.values()
    ] == expected
    file = tmp_path / "shop.yaml"
    file.write_text(topology_yaml(topology))
    assert set(load(file).flows) == set(topology.flows)


def test_both_ways_get_the_source_in_their_names() -> None:
    text = topology_yaml(proposed({"dc1": ["orders", "dc2.events"], "dc2": ["events"]}))
    common = 'rename: "{source}.{topic}"}'
    assert f"{{name: dc1-to-dc2, from: dc1, to: dc2, topics: {{include: [orders]}}, {common}\n" in text
    assert f"{{name: dc2-to-dc1, from: dc2, to: dc1, topics: {{include: [events]}}, {common}\n" in text
    assert "id: id-of-dc1" in text


def test_many_topics_are_one_pattern_without_the_copies() -> None:
    one_way = proposed({"dc1": MANY, "dc2": []}).flows["dc1-to-dc2"]
    assert (one_way.topics.include, one_way.topics.exclude) == ((".*",), ())
    both_ways = proposed({"dc1": MANY, "dc2": ["other"]}).flows["dc1-to-dc2"]
    assert (both_ways.topics.include, both_ways.topics.exclude) == ((".*",), (r"dc2\..*",))


def test_topics_of_kafka_and_its_tools_are_not_copied() -> None:
    assert own_topics(observed("dc1", "__consumer_offsets", "connect-internal", "a.replica", "orders")) == [
        "orders"
    ]
