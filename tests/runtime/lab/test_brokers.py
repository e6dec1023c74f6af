"""Real brokers: they come up as real clusters, can be broken as real ones break, and are gone after down."""

import os
from collections.abc import Callable, Iterable

import pytest

from runtime.lab import processes
from runtime.lab.cluster import LabKafkaCluster
from runtime.lab.files import LabError
from runtime.lab.lab import Lab, LabState
from tests.conftest import MakeLab
from tests.labs import spec
from tests.records import create_topic, read, wait_for, write

pytestmark = pytest.mark.integration


def clusters(lab: Lab) -> list[LabState]:
    return [cluster.state for cluster in lab.status().clusters]


def await_states(lab: Lab, *wanted: LabState) -> None:
    """Of its clusters. A broker that has much to do may answer too late for once."""
    wait_for(lambda: clusters(lab) == list(wanted), about=lambda: clusters(lab))


def test_a_whole_story(own_lab: MakeLab, fresh: Callable[[str], str]) -> None:
    """Up again reuses, down keeps the data, another object finds the same lab, purge forgets it."""
    lab, topic = own_lab(spec("dc1"), spec("dc2")), fresh("orders")
    create_topic(lab.clusters["dc1"].client, topic)
    write(lab.clusters["dc1"].client, topic, [b"kept"])
    before = lab.clusters
    pids = _pids(before.values())

    lab.up([spec("dc1"), spec("dc2")])
    assert _pids(before.values()) == pids

    lab.pause("dc2")
    await_states(lab, LabState.UP, LabState.PAUSED)
    lab.down()
    assert clusters(lab) == [LabState.DOWN, LabState.DOWN]
    with pytest.raises(LabError, match="dc1 does not run — repl lab start dc1"):
        lab.pause("dc1")

    again = Lab(lab.home)
    again.up([cluster.spec for cluster in again.clusters.values()])
    assert again.clusters == before
    assert [record.value for record in read(again.clusters["dc1"].client, topic)] == [b"kept"]
    again.down(purge=True)
    assert not lab.home.exists()


@pytest.mark.long
def test_a_third_cluster_joins_a_lab_and_a_broker_at_rest_takes_less_than_450_mb(own_lab: MakeLab) -> None:
    lab = own_lab(spec("dc1"))
    lab.up([spec("dc3")])
    await_states(lab, LabState.UP, LabState.UP)
    status = lab.status().clusters
    assert [cluster.name for cluster in status] == ["dc1", "dc3"]
    assert all(0 < cluster.memory_bytes < 450_000_000 for cluster in status), status


def _pids(clusters: Iterable[LabKafkaCluster]) -> dict[str, int]:
    running = processes.find([mark for cluster in clusters for mark in cluster.marks])
    return {mark: process.pid for mark, process in running.items()}


def test_only_our_brokers_are_found(lab: Lab) -> None:
    """A mark names the cluster: neither a recycled pid nor a broker of another lab is ever taken for ours."""
    ours = set(_pids(lab.clusters.values()).values())
    assert os.getpid() not in ours
    assert len(ours) == 2
    assert not processes.find([])
