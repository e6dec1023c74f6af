"""repl lab: flags become specs, and the lab is shown so that a person and a script can read it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from planner.cli.app import root
from planner.cli.lab_view import show
from planner.workflows.lab import specs
from planner.workflows.requests import LabChoices
from runtime.lab.cluster import LabClusterSpec, LabKafkaCluster, Security
from runtime.lab.lab import BrokerStatus, ClusterStatus, KdcStatus, Lab, LabState, LabStatus
from tests.fakes.tables import cases
from tests.records import create_topic

DC1 = LabClusterSpec("dc1", port=19092)
OTHER = LabClusterSpec("x", brokers=3, security=Security.TLS, port=29092)


def chosen(*existing: LabClusterSpec, **flags: Any) -> list[LabClusterSpec]:
    there = {spec.name: LabKafkaCluster(spec, "an-id", (), Path("/lab") / spec.name) for spec in existing}
    return specs(there, LabChoices(**flags))


@cases(
    "existing flags wanted",
    {
        "a new lab is dc1 and dc2 on their ports": ([], {}, [DC1, LabClusterSpec("dc2", port=29092)]),
        "free ports are left to the lab": (
            *([], {"ports": "auto"}),
            [LabClusterSpec("dc1", port=None), LabClusterSpec("dc2", port=None)],
        ),
        "an existing lab is taken as it is": ([OTHER], {}, [OTHER]),
        "a further cluster gets the next free ports": (
            *([DC1], {"clusters": "dc1,dc9"}),
            [DC1, LabClusterSpec("dc9", port=29092)],
        ),
    },
)
def test_which_clusters_a_lab_gets(existing, flags, wanted) -> None:
    assert chosen(*existing, **flags) == wanted


VERSION = LabClusterSpec("any").version


@cases(
    "flags field values",
    {
        "properties for all and for one": (
            {"settings": ("a.b=1", "dc2:a.b=2", "dc2:c=x=y")},
            "properties",
            [{"a.b": "1"}, {"a.b": "2", "c": "x=y"}],
        ),
        "the lab's own version": ({}, "version", [VERSION, VERSION]),
        "a version for all": ({"version": "3.9.1"}, "version", ["3.9.1", "3.9.1"]),
        "a version for one": ({"version": "dc1=2.8.2"}, "version", ["2.8.2", VERSION]),
        "a version for each": ({"version": "dc1=2.8.2, dc2=3.9.1"}, "version", ["2.8.2", "3.9.1"]),
        "brokers": ({"brokers": 3}, "brokers", [3, 3]),
        "security": ({"security": "sasl-tls"}, "security", [Security.SASL_TLS] * 2),
        "users": ({"security": "sasl-tls", "users": ("eve", "eve")}, "users", [("eve",)] * 2),
        "a mechanism": ({"security": "sasl-tls", "mechanism": "PLAIN"}, "mechanism", ["PLAIN"] * 2),
    },
)
def test_what_flags_say_of_each_cluster(flags, field, values) -> None:
    assert [getattr(spec, field) for spec in chosen(**flags)] == values


@pytest.fixture
def status() -> LabStatus:
    def broker(node: int, state: LabState) -> BrokerStatus:
        pid = None if state is LabState.DOWN else 100 + node
        return BrokerStatus(node, f"127.0.0.1:{node}", state, pid, 240_000_000 if pid else 0, "/log", "4.4.0")

    def cluster(name: str, state: LabState, *brokers: BrokerStatus) -> ClusterStatus:
        memory = sum(one.memory_bytes for one in brokers)
        return ClusterStatus(
            name, f"id-{name}", "boot", Security.PLAIN, state, memory, "p", "y", brokers, ("4.4.0",)
        )

    return LabStatus(
        "/lab",
        "/lab/topology.yaml",
        (
            cluster("dc1", LabState.UP, broker(1, LabState.UP)),
            cluster("dc2", LabState.PARTLY, broker(1, LabState.UP), broker(2, LabState.DOWN)),
        ),
        KdcStatus("LAB.EXAMPLE", "127.0.0.1:88", LabState.UP, 88, 6_000_000, "/log", "/krb5.conf"),
    )


def test_the_table(status: LabStatus, capsys: pytest.CaptureFixture[str]) -> None:
    show(status, as_json=False)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1:] == [
        ["dc1", "up", "127.0.0.1:1", "id-dc1", "plain", "4.4.0", "101", "240", "MB"],
        ["dc2", "partly", "up", "id-dc2", "plain", "4.4.0", "240", "MB"],
        ["dc2:1", "up", "127.0.0.1:1", "4.4.0", "101", "240", "MB"],
        ["dc2:2", "down", "127.0.0.1:2", "4.4.0", "–", "–"],
        ["kdc", "up", "127.0.0.1:88", "LAB.EXAMPLE", "88", "6", "MB"],
    ]


def test_the_json_is_versioned_and_whole(status: LabStatus, capsys: pytest.CaptureFixture[str]) -> None:
    show(status, as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert list(shown) == ["format_version", "home", "topology", "clusters", "kdc"]
    assert shown["format_version"] == 1
    assert shown["kdc"]["client_settings"] == "/krb5.conf"
    assert set(shown["clusters"][0]) == {
        *("name", "cluster_id", "bootstrap", "security", "state", "memory_bytes"),
        *("client_properties", "client_yaml", "brokers", "versions", "zookeeper"),
    }
    down = {"node": 2, "address": "127.0.0.1:2", "state": "down", "pid": None, "memory_bytes": 0}
    assert shown["clusters"][1]["brokers"][1] == {**down, "log": "/log", "version": "4.4.0"}


def test_no_lab_yet(tmp_path: Path) -> None:
    done = CliRunner().invoke(root, ["lab", "status", "--home", str(tmp_path / "none")])
    assert done.exit_code == 0
    assert "There is no lab in" in done.stderr
    assert not (tmp_path / "none").exists()


@pytest.mark.integration
def test_what_a_load_has_written(lab: Lab, fresh: Callable[[str], str]) -> None:
    topic = fresh("load")
    create_topic(lab.clusters["dc1"].client, topic, 1)
    words = f"lab load dc1:{topic} --rate 20 --seconds 0.5 --json --home {lab.home}"
    done = CliRunner().invoke(root, words.split())
    assert json.loads(done.stdout) == {
        "format_version": 1,
        "targets": [{"cluster": "dc1", "topic": topic, "written": 10, "lost": 0, "failed": None}],
    }
