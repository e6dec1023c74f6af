"""Real brokers: they come up as real clusters, can be broken as real ones break, and are gone after down."""

import os
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from runtime.lab.brokers import processes
from runtime.lab.cluster import LabClusterSpec, Listener
from runtime.lab.files import LabError
from runtime.lab.lab import Lab, LabState
from tests.conftest import MakeLab
from tests.labs import WITH_PARENT, spec
from tests.records import create_topic, read, wait_for, write

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("mode", ["lab", "lab_sasl", "lab_tls"])
def test_both_clusters_answer_with_their_own_id(mode: str, request: pytest.FixtureRequest) -> None:
    lab: Lab = request.getfixturevalue(mode)
    for cluster in lab.clusters.values():
        admin = AdminClient(cluster.client)
        described = admin.describe_cluster().result(timeout=60)
        assert described.cluster_id == cluster.cluster_id
    assert len({cluster.cluster_id for cluster in lab.clusters.values()}) == 2


def clusters(lab: Lab) -> list[LabState]:
    return [cluster.state for cluster in lab.status().clusters]


def await_states(lab: Lab, *wanted: LabState) -> None:
    """Of its clusters. A broker that has much to do may answer too late for once."""
    wait_for(lambda: clusters(lab) == list(wanted), about=lambda: clusters(lab))


def test_fresh_names_differ(fresh: Callable[[str], str]) -> None:
    assert fresh("orders") != fresh("orders")


@pytest.mark.long
def test_three_brokers_lose_one_and_go_on(own_lab: MakeLab, fresh: Callable[[str], str]) -> None:
    lab, topic = own_lab(spec("dc1", brokers=3)), fresh("orders")
    client = lab.clusters["dc1"].client
    create_topic(client, topic, partitions=3)
    admin = AdminClient(client)

    def leaders() -> set[int]:
        return {one.leader for one in admin.list_topics(topic, timeout=60).topics[topic].partitions.values()}

    wait_for(lambda: leaders() == {1, 2, 3})
    lab.kill("dc1:2")
    up, down = LabState.UP, LabState.DOWN
    wait_for(lambda: [broker.state for broker in lab.status().clusters[0].brokers] == [up, down, up])
    await_states(lab, LabState.PARTLY)
    wait_for(lambda: leaders() <= {1, 3})
    write(client, topic, [b"%d" % number for number in range(100)])
    lab.start("dc1:2")
    await_states(lab, LabState.UP)
    assert len(read(client, topic)) == 100
    lab.down()
    assert not processes.find(lab.clusters.values())


def test_a_whole_story(own_lab: MakeLab, fresh: Callable[[str], str]) -> None:
    """Up again reuses, down keeps the data, another object finds the same lab, purge forgets it."""
    lab, topic = own_lab(spec("dc1"), spec("dc2")), fresh("orders")
    create_topic(lab.clusters["dc1"].client, topic)
    write(lab.clusters["dc1"].client, topic, [b"kept"])
    before = lab.clusters
    pids = {key: process.pid for key, process in processes.find(before.values()).items()}

    lab.up([spec("dc1"), spec("dc2")])
    assert {key: process.pid for key, process in processes.find(before.values()).items()} == pids

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


@pytest.mark.long
def test_a_further_listener_tells_its_clients_another_address(own_lab: MakeLab) -> None:
    elsewhere = Listener("LINK", {1: "127.0.0.1:1"})
    lab = own_lab(LabClusterSpec("dc1", listeners=(elsewhere,), prefix=WITH_PARENT))
    cluster = lab.clusters["dc1"]

    def told(bootstrap: str) -> str:
        admin = AdminClient({**cluster.client, "bootstrap.servers": bootstrap, "log_level": 0})
        return str(admin.list_topics(timeout=60).brokers[1])

    assert told(cluster.listener("LINK")[1]).startswith("127.0.0.1:1/")
    assert told(cluster.bootstrap).startswith(f"{cluster.bootstrap}/")


@pytest.mark.long
def test_properties_of_one_cluster(own_lab: MakeLab) -> None:
    lab = own_lab(spec("dc1", properties={"num.partitions": "7"}))
    lab.tool("dc1", "TopicCommand", "--create", "--topic", "seven")
    admin = AdminClient(lab.clusters["dc1"].client)
    assert len(admin.list_topics("seven", timeout=60).topics["seven"].partitions) == 7


def test_only_our_brokers_are_found(lab: Lab) -> None:
    """A mark names the cluster: neither a recycled pid nor a broker of another lab is ever taken for ours."""
    ours = {process.pid for process in processes.find(lab.clusters.values()).values()}
    assert os.getpid() not in ours
    assert len(ours) == 2
    assert not processes.find([])
