"""What may be chosen, which ports follow from it, and what is kept of it."""

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.lab.brokers.storage import new_id
from runtime.lab.cluster import (
    LabClusterSpec,
    LabKafkaCluster,
    Listener,
    Security,
    default_ports,
)
from runtime.lab.create import HINT, assign_ports, create, load_all, require_same, store
from runtime.lab.files import LabError
from runtime.lab.kit import IvyRequest, ivy_failure
from runtime.lab.lab import Lab
from runtime.lab.ports import require_free_port


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        *(
            ({"name": name}, "is not a name for a cluster")
            for name in ("", "..", "a/b", "-a", "a b", "dc1:2")
        ),
        ({"name": "kdc"}, "the folder of the lab's KDC"),
        *(({"brokers": brokers}, "choose 1 to 9") for brokers in (0, 10)),
        *(
            ({"listeners": (Listener(name, {1: "a:1"}),)}, "is not a name for a listener")
            for name in ("CLIENT", "CONTROLLER", "link", "")
        ),
        *(
            ({"version": version}, r"is not a version of Kafka|is too old for the lab")
            for version in ("2.3.1", "4.1", "latest", "")
        ),
        ({"version": "3.2.3", "security": Security.TLS}, r"choose version 3\.3\.0 or newer"),
        (
            {"security": Security.SASL, "mechanism": "GSSAPI"},
            "'GSSAPI' is not a mechanism that the lab has — choose PLAIN, SCRAM",
        ),
    ],
)
def test_clusters_that_are_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(LabError, match=problem):
        LabClusterSpec(**{"name": "dc1", **changes})
    LabClusterSpec("dc1", version="3.3.2", security=Security.TLS)


def test_fixed_ports_follow_the_first() -> None:
    nodes, _ = assign_ports(LabClusterSpec("dc1", brokers=3, port=19092, listeners=(Listener("LINK", {}),)))
    assert [node.port for node in nodes] == [19092, 19093, 19094]
    assert [node.controller_port for node in nodes] == [19192, 19193, 19194]
    assert [node.listener_ports for node in nodes] == [{"LINK": 19292}, {"LINK": 19293}, {"LINK": 19294}]


def test_free_ports_are_free_and_differ() -> None:
    nodes, _ = assign_ports(LabClusterSpec("dc1", brokers=9))
    chosen = [port for node in nodes for port in (node.port, node.controller_port)]
    assert len(set(chosen)) == 18
    for port in chosen:
        with socket.create_server(("127.0.0.1", port)):
            pass


@pytest.mark.parametrize(
    ("version", "zookeeper"), [("2.4.1", True), ("3.4.1", True), ("3.5.2", False), ("4.4.0", False)]
)
def test_old_versions_get_a_zookeeper(version: str, zookeeper: bool) -> None:
    nodes, found = assign_ports(LabClusterSpec("dc1", brokers=3, port=19092, version=version))
    assert {node.version for node in nodes} == {version}
    assert (found.port if found else None) == (19242 if zookeeper else None)


def test_default_ports_pass_over_taken_ones() -> None:
    assert list(default_ports([])) == [19092, 29092, 39092, 49092, 59092]
    assert next(iter(default_ports([19092, 29092]))) == 39092


def test_a_host_that_is_not_here_is_named() -> None:
    with pytest.raises(LabError, match=r"203.0.113.1:19092 cannot be listened on: Cannot assign"):
        require_free_port("203.0.113.1", 19092, HINT)


def test_behind_a_prefix_a_host_may_be_elsewhere() -> None:
    require_free_port("203.0.113.1", 19092, HINT, elsewhere=True)


def test_what_is_kept_is_read_back(tmp_path: Path) -> None:
    spec = LabClusterSpec(
        "dc1",
        2,
        Security.TLS,
        19092,
        "10.0.0.1",
        {"a": "b"},
        ("u",),
        (Listener("LINK", {1: "x:1", 2: "x:2"}),),
        ("p",),
    )
    nodes, _ = assign_ports(replace(spec, prefix=("elsewhere",)))
    folder = tmp_path / "dc1"
    folder.mkdir()
    cluster = LabKafkaCluster(spec, "an-id", nodes, folder)
    store(cluster)
    assert str(folder) not in (folder / "cluster.json").read_text()  # a lab may be moved
    assert load_all(tmp_path) == {"dc1": cluster}


def test_a_record_of_another_version_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "dc1").mkdir()
    (tmp_path / "dc1" / "cluster.json").write_text('{"spec": 1}')
    with pytest.raises(LabError, match="is not a cluster of this version of the lab"):
        load_all(tmp_path)


def test_a_place_that_kafka_would_split(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="Kafka keeps no data below a path with a comma"):
        create(tmp_path / "a,b", [LabClusterSpec("dc1")], (), {})


def test_every_difference_is_named(tmp_path: Path) -> None:
    cluster = LabKafkaCluster(LabClusterSpec("dc1", port=19092), "an-id", (), tmp_path)
    require_same(cluster, LabClusterSpec("dc1"))  # no port asked for: it keeps its own
    with pytest.raises(
        LabError, match="with brokers 1, not 3; security plain, not tls — repl lab down --purge"
    ):
        require_same(cluster, LabClusterSpec("dc1", brokers=3, security=Security.TLS))


def test_a_lab_does_not_start_a_cluster_that_is_asked_for_with_other_settings(tmp_path: Path) -> None:
    (tmp_path / "dc1").mkdir()
    store(LabKafkaCluster(LabClusterSpec("dc1"), "an-id", (), tmp_path / "dc1"))
    with pytest.raises(LabError, match="dc1 exists already with brokers 1, not 3"):
        Lab(tmp_path).up([LabClusterSpec("dc1", brokers=3)])


def test_ids_never_look_like_options() -> None:
    ids = {new_id() for _ in range(500)}
    assert len(ids) == 500
    assert not [one for one in ids if one.startswith("-") or len(one) != 22]


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("java.io.IOException: No space left on device", "the disk is full: thing could not be fetched"),
        (
            "\t\tHost repository.example not found. url=x",
            "could not be fetched: Host repository.example not found",
        ),
        (
            ":: unresolved dependency: a#b;1: not found",
            "unresolved dependency: a#b;1: not found — check the network",
        ),
        ("nothing of note", "thing could not be fetched — check the network"),
    ],
)
def test_ivys_words_become_one_sentence(said: str, sentence: str) -> None:
    assert sentence in str(ivy_failure(IvyRequest("thing", (), 1), ["", said]))
