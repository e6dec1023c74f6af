"""plans/examples/: each is what its name says, targets the lab, and runs on clusters of one broker."""

from pathlib import Path

import pytest

from planner.config import load_with_warnings
from planner.model.topology import Topology
from runtime.contract.spec.rename import forward

FOLDER = Path("plans/examples")
LAB = {"127.0.0.1:19092", "127.0.0.1:29092", "127.0.0.1:39092"}


def example(name: str) -> Topology:
    loaded = load_with_warnings(FOLDER / f"{name}.yaml")
    assert loaded.warnings == ()
    return loaded.topology


def ways(topology: Topology) -> set[tuple[str, str, str, str]]:
    """Source, its topic, destination, the name there: for topics that are declared and written out."""
    return {
        (
            flow.source_cluster,
            topic,
            flow.destination_cluster,
            forward(flow.rename, topic, flow.source_cluster),
        )
        for flow in topology.flows.values()
        for topic in flow.topics.include
    }


WAYS = {
    "active-passive": {("dc1", "orders", "dc2", "orders"), ("dc1", r"payments\..*", "dc2", r"payments\..*")},
    "active-active": {("dc1", "orders", "dc2", "orders"), ("dc2", "orders", "dc1", "orders")},
    "active-active-prefixed": {
        ("dc1", "orders", "dc2", "dc1.orders"),
        ("dc1", "invoices", "dc2", "dc1.invoices"),
        ("dc2", "orders", "dc1", "dc2.orders"),
        ("dc2", "invoices", "dc1", "dc2.invoices"),
    },
    "fan-in": {("dc1", "clicks", "dc3", "dc1.clicks"), ("dc2", "clicks", "dc3", "dc2.clicks")},
    "fan-out": {("dc1", r"prices\..*", "dc2", r"prices\..*"), ("dc1", r"prices\..*", "dc3", r"prices\..*")},
    "chain": {("dc1", "readings", "dc2", "readings"), ("dc2", "readings", "dc3", "readings")},
    "migration": {("old", ".*", "new", ".*")},
    "replicator-demo": {
        ("dc1", "topic1", "dc2", "topic1"),
        ("dc2", "topic1", "dc1", "topic1"),
        ("dc1", "topic2", "dc2", "topic2.replica"),
        ("dc1", "_schemas", "dc2", "_schemas"),
    },
}


def test_every_example_is_here() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(WAYS)


@pytest.mark.parametrize("name", WAYS)
def test_an_example_copies_what_it_says(name: str) -> None:
    assert ways(example(name)) == WAYS[name]


@pytest.mark.parametrize("name", WAYS)
def test_an_example_runs_in_the_lab(name: str) -> None:
    topology = example(name)
    assert {cluster.bootstrap for cluster in topology.clusters.values()} <= LAB
    assert topology.name == name
    assert all(topic.replication in (None, 1) for topic in topology.topics)
    ports = [job.metrics.port for job in topology.jobs.values() if job.metrics is not None]
    assert len(ports) == len(set(ports)), "jobs on one machine need ports of their own"
