"""repl lab: flags become specs, and the lab is shown so that a person and a script can read it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.cli.app import root
from planner.cli.lab_view import show
from planner.workflows.lab import specs
from planner.workflows.requests import LabChoices
from runtime.lab.cluster import LabClusterSpec, LabKafkaCluster, Security
from runtime.lab.files import LabError
from runtime.lab.lab import BrokerStatus, ClusterStatus, KdcStatus, Lab, LabState, LabStatus
from tests.records import create_topic

NOTHING = LabChoices()


def existing(*wanted: LabClusterSpec) -> dict[str, LabKafkaCluster]:
    return {one.name: LabKafkaCluster(one, "an-id", (), Path("/lab") / one.name) for one in wanted}


def test_a_new_lab_is_dc1_and_dc2_on_their_ports() -> None:
    assert specs({}, NOTHING) == [LabClusterSpec("dc1", port=19092), LabClusterSpec("dc2", port=29092)]


def test_free_ports_are_left_to_the_lab() -> None:
    assert [one.port for one in specs({}, LabChoices(ports="auto"))] == [None, None]


def test_an_existing_lab_is_taken_as_it_is() -> None:
    kept = LabClusterSpec("x", brokers=3, security=Security.TLS, port=29092)
    assert specs(existing(kept), NOTHING) == [kept]


def test_a_further_cluster_gets_the_next_free_ports() -> None:
    kept = LabClusterSpec("dc1", port=19092)
    _, new = specs(existing(kept), LabChoices(clusters="dc1,dc9"))
    assert new == LabClusterSpec("dc9", port=29092)


def test_properties_for_all_and_for_one() -> None:
    chosen = LabChoices(settings=("a.b=1", "dc2:a.b=2", "dc2:c=x=y"))
    assert [one.properties for one in specs({}, chosen)] == [{"a.b": "1"}, {"a.b": "2", "c": "x=y"}]


@pytest.mark.parametrize(
    ("flag", "versions"),
    [
        (None, ["4.4.0", "4.4.0"]),
        ("3.9.1", ["3.9.1", "3.9.1"]),
        ("dc1=2.8.2", ["2.8.2", "4.4.0"]),
        ("dc1=2.8.2, dc2=3.9.1", ["2.8.2", "3.9.1"]),
    ],
)
def test_versions_for_all_and_for_each(flag: str | None, versions: list[str]) -> None:
    assert [one.version for one in specs({}, LabChoices(version=flag))] == versions


def test_a_version_for_another_cluster_is_refused() -> None:
    with pytest.raises(LabError, match=r"--version dc3=2\.8\.2 names none of these clusters"):
        specs({}, LabChoices(version="dc3=2.8.2"))


def test_flags_reach_every_cluster() -> None:
    chosen = LabChoices(brokers=3, security="sasl-tls", users=("eve", "eve"), mechanism="PLAIN")
    assert {(one.brokers, one.security, one.users, one.mechanism) for one in specs({}, chosen)} == {
        (3, Security.SASL_TLS, ("eve",), "PLAIN")
    }


@pytest.mark.parametrize("settings", [("novalue",), ("=1",), ("dc9:a=1",)])
def test_settings_that_make_no_sense(settings: tuple[str, ...]) -> None:
    with pytest.raises(LabError, match="--set"):
        specs({}, LabChoices(settings=settings))


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
    assert shown["clusters"][1]["brokers"][1] == {
        "node": 2,
        "address": "127.0.0.1:2",
        "state": "down",
        "pid": None,
        "memory_bytes": 0,
        "log": "/log",
        "version": "4.4.0",
    }


def test_no_lab_yet(tmp_path: Path) -> None:
    done = CliRunner().invoke(root, ["lab", "status", "--home", str(tmp_path / "none")])
    assert done.exit_code == 0
    assert "There is no lab in" in done.stderr
    assert not (tmp_path / "none").exists()


@pytest.mark.integration
def test_what_a_load_has_written(lab: Lab, fresh: Callable[[str], str]) -> None:
    topic = fresh("load")
    create_topic(lab.clusters["dc1"].client, topic, 1)
    words = [
        "lab",
        "load",
        f"dc1:{topic}",
        "--rate",
        "20",
        "--seconds",
        "0.5",
        "--json",
        "--home",
        str(lab.home),
    ]
    done = CliRunner().invoke(root, words)
    assert json.loads(done.stdout) == {
        "format_version": 1,
        "targets": [{"cluster": "dc1", "topic": topic, "written": 10, "lost": 0, "failed": None}],
    }
