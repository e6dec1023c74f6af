"""Brokers of older versions: with ZooKeeper, with SCRAM users, killed, started again, and upgraded."""

import pytest
from confluent_kafka.admin import AdminClient

from runtime.lab.cluster import Security
from runtime.lab.files import LabError
from runtime.lab.lab import LabState
from tests.conftest import MakeLab
from tests.labs import spec
from tests.records import create_topic, read, wait_for, write

pytestmark = [pytest.mark.integration, pytest.mark.long]


def test_zookeeper_comes_up_and_goes_with_its_cluster(own_lab: MakeLab) -> None:
    lab = own_lab(spec("dc1", version="2.8.2", security=Security.SASL))
    cluster = lab.clusters["dc1"]
    assert AdminClient(cluster.client).describe_cluster().result(timeout=60).cluster_id == cluster.cluster_id
    create_topic(cluster.client, "orders")
    write(cluster.client, "orders", [b"1"])

    lab.kill("dc1")
    status = lab.status().clusters[0]
    assert status.zookeeper is not None
    assert (status.state, status.zookeeper.state) == (LabState.DOWN, LabState.DOWN)

    lab.start("dc1")
    lab.kill("dc1:zookeeper")
    status = lab.status().clusters[0]
    assert status.zookeeper is not None
    assert (status.state, status.zookeeper.state) == (LabState.UP, LabState.DOWN)

    lab.start("dc1:zookeeper")
    write(cluster.client, "orders", [b"2"])
    assert [one.value for one in read(cluster.client, "orders")] == [b"1", b"2"]


def test_brokers_are_upgraded_one_after_the_other(own_lab: MakeLab) -> None:
    lab = own_lab(spec("dc1", version="3.9.1", brokers=3))
    client = lab.clusters["dc1"].client
    create_topic(client, "orders")
    write(client, "orders", [b"1"])
    with pytest.raises(LabError, match=r"dc1:1 runs with 3\.9\.1 — stop it first: repl lab stop dc1:1"):
        lab.start("dc1:1", version="4.4.0")
    for broker in ("dc1:1", "dc1:2"):
        lab.stop(broker)
        lab.start(broker, version="4.4.0")
    status = lab.status().clusters[0]
    assert status.versions == ("3.9.1", "4.4.0")
    lab.stop("dc1:3")
    lab.start("dc1:3", version="4.4.0")
    wait_for(lambda: lab.status().clusters[0].versions == ("4.4.0",))
    assert lab.clusters["dc1"].spec.version == "4.4.0"
    assert [one.value for one in read(client, "orders")] == [b"1"]
