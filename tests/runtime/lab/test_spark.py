"""A cluster for Spark's applications, on this machine: what is kept of it, its settings, and its errors."""

import json
import socket
import xml.etree.ElementTree as ET
from dataclasses import asdict
from pathlib import Path

import pytest

from runtime.lab import kit, spark
from runtime.lab.files import LabError, exclusive
from runtime.lab.spark import LabSpark, SparkCluster, SparkDaemon, StoredSpark
from tests.ports import free_port

STORED = StoredSpark(
    "an-id",
    (
        SparkDaemon("resourcemanager", (1, 2, 3, 4, 5)),
        SparkDaemon("nodemanager1", (11, 12, 13, 14, 15)),
    ),
    2048,
    4,
)


def kept(home: Path, kind: SparkCluster = SparkCluster.YARN, stored: StoredSpark = STORED) -> LabSpark:
    folder = home / f"spark-{kind}"
    folder.mkdir(parents=True)
    (folder / ".repl-lab").touch()
    (folder / "spark.json").write_text(json.dumps(asdict(stored)))
    return LabSpark(home, kind)


def test_what_is_kept_is_read_back(tmp_path: Path) -> None:
    cluster = kept(tmp_path)
    assert cluster.stored == STORED
    assert (cluster.master, cluster.page) == ("yarn", "http://127.0.0.1:1")
    assert cluster.environment["HADOOP_CONF_DIR"] == str(tmp_path / "spark-yarn" / "conf")
    standalone = kept(tmp_path, SparkCluster.STANDALONE)
    assert standalone.master == "spark://127.0.0.1:2"
    assert standalone.environment["SPARK_CONF_DIR"] == str(tmp_path / "spark-standalone" / "conf")


def test_a_cluster_that_runs_nothing_is_down(tmp_path: Path) -> None:
    status = kept(tmp_path).status()
    assert [(daemon.name, daemon.pid, daemon.serves) for daemon in status.daemons] == [
        ("resourcemanager", None, False),
        ("nodemanager1", None, False),
    ]


def test_down_removes_it(tmp_path: Path) -> None:
    cluster = kept(tmp_path)
    assert cluster.down()
    assert not cluster.folder.exists()
    assert not cluster.down()


def test_yarn_has_no_port_but_on_the_loopback_and_the_memory_that_was_chosen(tmp_path: Path) -> None:
    settings = spark._yarn_settings(tmp_path, STORED)["yarn-site"]
    addresses = [value for key, value in settings.items() if key.endswith("address")]
    assert sorted(addresses) == [f"127.0.0.1:{port}" for port in (1, 2, 3, 4, 5)]
    assert settings["yarn.nodemanager.resource.memory-mb"] == "2048"
    (prop,) = ET.fromstring(spark._xml({"a": "<&>"}))
    assert [child.text for child in prop] == ["a", "<&>"]


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "find_java", lambda: "java")


@pytest.mark.usefixtures("java")
def test_other_settings_than_those_of_the_cluster(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"1 nodemanagers of 2048 MB and 4 cores each — repl lab spark yarn"):
        kept(tmp_path).up(workers=3)


@pytest.mark.usefixtures("java")
def test_too_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "_DAEMON_MB", 10**9)
    with pytest.raises(LabError, match=r"MB of memory left, and a master with 2 workers takes .* --workers"):
        LabSpark(tmp_path, SparkCluster.STANDALONE).up()


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    with pytest.raises(LabError, match=r"JAVA_HOME is .* correct or unset JAVA_HOME"):
        LabSpark(tmp_path, SparkCluster.YARN).up()


def test_started_twice_at_once(tmp_path: Path) -> None:
    with (
        exclusive(tmp_path / "lock", "repl lab spark yarn up"),
        pytest.raises(LabError, match=r"yarn up cannot begin: repl lab spark yarn up .* is at work there"),
    ):
        LabSpark(tmp_path, SparkCluster.YARN).up()


@pytest.mark.usefixtures("java")
def test_a_port_that_another_program_has_taken_meanwhile(tmp_path: Path) -> None:
    port = free_port()
    taken = StoredSpark("an-id", (SparkDaemon("master", (port,)),), 1024, 1)
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(LabError, match=rf"127.0.0.1:{port} is taken by process .* standalone down"):
            kept(tmp_path, SparkCluster.STANDALONE, taken).up()


def test_no_such_cluster_and_no_such_daemon(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"there is no cluster of the kind yarn .* repl lab spark yarn up"):
        LabSpark(tmp_path, SparkCluster.YARN).status()
    with pytest.raises(LabError, match="no 'nodemanager9' in it — it has resourcemanager, nodemanager1"):
        kept(tmp_path).kill("nodemanager9")


def test_a_record_of_another_version(tmp_path: Path) -> None:
    cluster = kept(tmp_path)
    (cluster.folder / "spark.json").write_text("{}")
    with pytest.raises(LabError, match="is not a cluster of this version of the lab"):
        LabSpark(tmp_path, SparkCluster.YARN)


def test_yarns_jars_are_pinned() -> None:
    pins = kit.pinned(spark.YARN_JARS)
    assert pins is not None
    assert len(pins) == spark.YARN_JARS.count
