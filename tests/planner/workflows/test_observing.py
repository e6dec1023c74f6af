"""What a plan asks of the clusters: what expanding wants, and what leaves the topology."""

from collections.abc import Sequence
from dataclasses import replace

from planner.diff.differ import declaring_nothing
from planner.model.address import Address, Kind, topic_address
from planner.model.observed import RegistryEntry, TopicConfigsRequest
from planner.model.topology import Cluster, Flow, Selection, Topic, Topology
from planner.observe import named_topics
from planner.workflows.observing import request_for
from tests.fakes.states import cluster, flow, live, observed


def topology(*topics: Topic, flows: Sequence[Flow] = ()) -> Topology:
    return Topology("shop", {}, topics, flows={one.name: one for one in flows})


def owned(name: str, topology_name: str = "shop") -> RegistryEntry:
    return RegistryEntry(topic_address("dc1", name), topology_name)


def test_a_declared_topic_is_read_whether_it_is_there_or_not() -> None:
    declared = topology(Topic("orders", "dc1", config={"vendor.key": "1"}), Topic("new", "dc1"))
    wanted = request_for(_with(declared, "dc1"), observed(cluster(live("orders"), live("other"))))["dc1"]
    assert set(wanted.configs) == {"orders", "new"}
    assert wanted.configs["orders"].explicit
    assert "vendor.key" in wanted.configs["orders"].keys
    assert (wanted.acls, wanted.sizes, wanted.every_group) == (False, frozenset(), False)


def test_what_leaves_the_topology_is_read_with_what_goes_along() -> None:
    there = cluster(live("orders"), live("old"), owned=[owned("orders"), owned("old"), owned("x", "another")])
    wanted = request_for(_with(topology(Topic("orders", "dc1")), "dc1"), observed(there))["dc1"]
    assert set(wanted.configs) == {"orders", "old"}
    assert isinstance(wanted.configs["old"], TopicConfigsRequest)
    assert wanted.sizes == {"old"}
    assert wanted.every_group


def test_what_a_flow_reads_leaves_like_any_other_topic() -> None:
    """Also by repl destroy, for which nothing is declared any more."""
    reads = flow("f", topics=Selection(("orders",)))
    there = observed(cluster(live("orders"), owned=[owned("orders")]), cluster(name="dc2"))
    gone = _with(topology(flows=[reads]), "dc1", "dc2")
    kept = _with(topology(Topic("orders", "dc1"), flows=[reads]), "dc1", "dc2")

    assert [request_for(one, there)["dc1"].sizes for one in (kept, gone, declaring_nothing(kept))] == [
        frozenset(),
        {"orders"},
        {"orders"},
    ]


def test_acls_that_we_own_are_read_though_none_is_declared() -> None:
    entry = RegistryEntry(Address(Kind.ACL, "dc1", "allow.User:a.READ.topic.x"), "shop")
    wanted = request_for(_with(topology(), "dc1"), observed(cluster(owned=[entry])))["dc1"]
    assert wanted.acls


def test_names_that_are_written_out_are_asked_for_by_name() -> None:
    mirrored = flow("f", topics=Selection(("orders", r"eu\.payments", "tmp-.*")))
    names = named_topics(topology(Topic("ledger", "dc2"), flows=[mirrored]))
    assert names == {"dc2": frozenset({"ledger"}), "dc1": frozenset({"orders", "eu.payments"})}


def _with(topology: Topology, *clusters: str) -> Topology:
    return replace(topology, clusters={name: Cluster(name, "a:1") for name in clusters})
