"""A cluster for Spark's applications, on this machine: what is kept of it, its settings, and its errors."""

import json
import os
import shlex
import socket
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from planner.cli.lab_view import show_spark
from planner.model.diagnostic import Failure
from planner.workflows.lab import open_spark, stop_lab
from runtime.lab import kit, processes, spark
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
    assert [(daemon.name, daemon.pid, daemon.serves) for daemon in cluster.status().daemons] == [
        ("resourcemanager", None, False),
        ("nodemanager1", None, False),
    ]
    assert (cluster.master, cluster.page) == ("yarn", "http://127.0.0.1:1")
    assert cluster.environment["HADOOP_CONF_DIR"] == str(tmp_path / "spark-yarn" / "conf")
    standalone = kept(tmp_path, SparkCluster.STANDALONE)
    assert standalone.master == "spark://127.0.0.1:2"
    assert standalone.environment["SPARK_CONF_DIR"] == str(tmp_path / "spark-standalone" / "conf")


def test_yarn_has_no_port_but_on_the_loopback_and_the_memory_that_was_chosen(tmp_path: Path) -> None:
    settings = spark._yarn_settings(tmp_path, STORED)["yarn-site"]
    addresses = [value for key, value in settings.items() if key.endswith("address")]
    assert sorted(addresses) == [f"127.0.0.1:{port}" for port in (1, 2, 3, 4, 5)]
    assert settings["yarn.nodemanager.resource.memory-mb"] == "2048"
    (prop,) = ET.fromstring(spark._xml({"a": "<&>"}))
    assert [child.text for child in prop] == ["a", "<&>"]


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "find_java", lambda *_: "java")


@pytest.mark.usefixtures("java")
def test_other_settings_than_those_of_the_cluster(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"1 nodemanagers of 2048 MB and 4 cores each — repl lab spark yarn"):
        kept(tmp_path).up(workers=3)


@pytest.mark.usefixtures("java")
def test_too_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "_DAEMON_MB", 10**9)
    with pytest.raises(LabError, match=r"MB of memory left, and a master with 2 workers takes .* --workers"):
        LabSpark(tmp_path, SparkCluster.STANDALONE).up()


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


@contextmanager
def running(variable: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with REPL_LAB_SPARK in its environment."""
    words = [sys.executable, "-c", "import time; time.sleep(60)"]
    process = subprocess.Popen(words, env={**os.environ, spark.MARK: variable})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("record", [b"{}", b"{", b"\xff", b'{"id": "x", "daemons": []}'])
def test_down_removes_a_cluster_whose_record_is_unreadable(tmp_path: Path, record: bytes) -> None:
    cluster = kept(tmp_path)
    file = cluster.folder / "spark.json"
    mark = f"-Drepl.lab={cluster._new_id()}:nodemanager1"
    file.write_bytes(record)
    with pytest.raises(LabError, match=r"is not a cluster of this version of the lab.* spark yarn down, and"):
        LabSpark(tmp_path, SparkCluster.YARN).status()
    other = f"-Drepl.lab={LabSpark(tmp_path / 'other', SparkCluster.YARN)._new_id()}:nodemanager1"
    with running(mark) as daemon, running(other) as stranger:
        assert stop_lab(tmp_path) == ("spark yarn (removed)",)
        assert daemon.wait(10) == -9
        assert stranger.poll() is None
    assert not cluster.folder.exists()
    assert not cluster.down()


def test_brokers_are_stopped_where_a_cluster_for_spark_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_self: LabSpark) -> bool:
        raise LabError("cannot be removed")

    stopped = []
    monkeypatch.setattr(LabSpark, "down", broken)
    monkeypatch.setattr(
        "planner.workflows.lab.Lab.down", lambda lab, purge: stopped.append((lab.home, purge))
    )
    with pytest.raises(Failure, match="cannot be removed"):
        stop_lab(tmp_path, purge=True)
    assert stopped == [(tmp_path, True)]


@pytest.mark.usefixtures("java")
def test_a_first_up_that_fails_leaves_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> str:
        raise LabError("no such jar")

    monkeypatch.setattr(spark, "classpath", fails)
    cluster = LabSpark(tmp_path, SparkCluster.YARN)
    with pytest.raises(LabError, match="no such jar"):
        cluster.up()
    assert not cluster.folder.exists()
    monkeypatch.setattr(spark, "classpath", lambda *_: "jars")
    monkeypatch.setattr(spark, "find_java", lambda *_: sys.executable)  # a daemon that ends at once
    with pytest.raises(LabError, match=r"(resourcemanager|nodemanager\d) died\."):
        cluster.up()
    assert (cluster.folder / "resourcemanager.log").exists()
    with pytest.raises(LabError, match="there is no cluster of the kind yarn"):
        cluster.status()
    assert cluster.down()


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("name", ["a lab", "it's", "a,b", "$HOME"])
def test_a_home_in_which_yarn_would_run_nothing(tmp_path: Path, name: str) -> None:
    with pytest.raises(LabError, match=r"YARN runs no application below a path with .* another --home"):
        LabSpark(tmp_path / name, SparkCluster.YARN).up()
    assert not (tmp_path / name / "spark-yarn").exists()


class _Page(BaseHTTPRequestHandler):
    """The page of a ResourceManager that counts on some NodeManagers."""

    nodes: tuple[int, ...] = ()

    def do_GET(self) -> None:
        nodes = [{"id": f"127.0.0.1:{port}", "state": "RUNNING"} for port in self.nodes]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"nodes": {"node": nodes}}).encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def page(*nodes: int) -> Iterator[StoredSpark]:
    server = HTTPServer(("127.0.0.1", 0), type("Page", (_Page,), {"nodes": nodes}))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    manager = replace(STORED.daemons[0], ports=(server.server_port, 2, 3, 4, 5))
    try:
        yield replace(STORED, daemons=(manager, *STORED.daemons[1:]))
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_proxy_of_the_environment_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with page(12) as stored:
        assert kept(tmp_path, stored=stored)._serving() == {"resourcemanager", "nodemanager1"}


@pytest.mark.usefixtures("java")
def test_up_waits_for_a_worker_that_runs_and_does_not_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(marks: list[str]) -> dict[str, processes.LabProcess]:
        return {mark: processes.LabProcess(1, False, 0) for mark in marks}

    monkeypatch.setattr(processes, "find", run)
    monkeypatch.setattr(spark, "classpath", lambda *_: "jars")
    with page() as stored, pytest.raises(LabError, match=r"nodemanager1 did not serve within 0 s"):
        kept(tmp_path, stored=stored).up(timeout=0.1)
    with page(12) as stored:
        kept(tmp_path / "again", stored=stored).up(timeout=0.1)


def test_a_home_with_a_space(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "my lab's"
    cluster = kept(home, SparkCluster.STANDALONE)
    _, environ = cluster._standalone_command("/usr/bin/java", tmp_path, STORED.daemons[0])
    options = shlex.split(environ["SPARK_DAEMON_JAVA_OPTS"])
    assert options[-1] == f"-Dlog4j2.configurationFile={cluster.conf}/log4j2.properties"
    with open_spark(home, SparkCluster.STANDALONE) as opened:
        show_spark(opened.status(), as_json=False)
    (line,) = (line for line in capsys.readouterr().err.splitlines() if ": export " in line)
    assert shlex.split(line.partition(": export ")[2])[0] == f"SPARK_CONF_DIR={cluster.conf}"


def test_yarns_jars_are_pinned() -> None:
    pins = kit.pinned(spark.YARN_JARS)
    assert pins is not None
    assert len(pins) == spark.YARN_JARS.count
