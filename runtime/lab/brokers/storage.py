"""This module formats a new cluster's storage with Kafka's tool, once; the other nodes get copies."""

import base64
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from runtime.lab.brokers import zookeeper
from runtime.lab.brokers.launch import Kits
from runtime.lab.cluster import CONTROLLER, SCRAM, BrokerPorts, LabKafkaCluster, Security
from runtime.lab.errors import LabError
from runtime.lab.files import write
from runtime.lab.kit import Kit


def new_id() -> str:
    """Returns an id in Kafka's format.

    It does not begin with a dash, because Kafka's tools would take that for an option.
    """
    while True:
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not made.startswith("-"):
            return made


def format_command(cluster: LabKafkaCluster, kit: Kit, passwords: Mapping[str, str]) -> list[str]:
    """Returns the command that formats the first node."""
    node = cluster.nodes[0]
    words = kit.command(*cluster.logging_options(kit.version), "-XX:TieredStopAtLevel=1")
    words += ["kafka.tools.StorageTool", "format", "-t", cluster.cluster_id]
    words += ["-c", str(cluster.properties_file(node))]
    if cluster.spec.security is Security.SASL:
        for user, password in passwords.items():
            if user != CONTROLLER:
                words += ["--add-scram", f"{SCRAM}=[name={user},password={password}]"]
    return words


def format_all(
    kits: Kits, clusters: Sequence[LabKafkaCluster], passwords: Mapping[str, Mapping[str, str]]
) -> None:
    """Formats the first node of each cluster, in parallel; the other nodes get the same bootstrap metadata.

    A cluster with ZooKeeper needs no format: its id and its users are written to ZooKeeper.

    Raises LabError.
    """
    for cluster in clusters:
        if cluster.zookeeper is not None:
            zookeeper.prepare(kits[cluster.spec.version], cluster, passwords[cluster.name])
    clusters = [cluster for cluster in clusters if cluster.zookeeper is None]
    running: list[tuple[LabKafkaCluster, subprocess.Popen[str]]] = []
    try:
        for cluster in clusters:
            # The arguments are passed in a private file: the process table must not show passwords.
            arguments = cluster.secret_file("format.args")
            words = format_command(cluster, kits[cluster.spec.version], passwords[cluster.name])
            write(arguments, "\n".join(_quote(word) for word in words[1:]), secret=True)
            running.append((cluster, _run_tool(words[0], arguments)))
        for cluster, process in running:
            output, _ = process.communicate()
            if process.returncode:
                raise LabError(
                    f"Kafka's storage tool refused to format {cluster.name}: {_last_error(output)}",
                    "correct what was set with --set",
                    where=cluster.name,
                )
            cluster.secret_file("format.args").unlink()
    finally:
        for _, process in running:
            with process:
                process.kill()
    for cluster in clusters:
        for node in cluster.nodes[1:]:
            _copy(cluster, cluster.nodes[0], node)


def _run_tool(java: str, arguments: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [java, f"@{arguments}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _quote(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _copy(cluster: LabKafkaCluster, first: BrokerPorts, node: BrokerPorts) -> None:
    data = cluster.home_of(node) / "data"
    data.mkdir(parents=True, exist_ok=True)
    shutil.copy(cluster.home_of(first) / "data" / "bootstrap.checkpoint", data)
    facts = {
        "version": "1",
        "cluster.id": cluster.cluster_id,
        "node.id": str(node.id),
        "directory.id": new_id(),
    }
    write(data / "meta.properties", "".join(f"{key}={value}\n" for key, value in facts.items()))


def _last_error(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if not line.startswith("at ")]
    return errors[-1] if errors else "it said nothing"
