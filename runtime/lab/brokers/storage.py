"""A new cluster's storage, formatted by Kafka's own tool, once; the other nodes get copies."""

import base64
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from runtime.lab.brokers.security import CONTROLLER, SCRAM
from runtime.lab.cluster import Cluster
from runtime.lab.errors import LabError
from runtime.lab.files import write
from runtime.lab.kit.kit import Kit
from runtime.lab.spec import Node, Security


def new_id() -> str:
    """An id as Kafka writes them. One that begins with a dash would be taken for an option by its tools."""
    while True:
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not made.startswith("-"):
            return made


def format_command(cluster: Cluster, kit: Kit, passwords: Mapping[str, str]) -> list[str]:
    node = cluster.nodes[0]
    words = kit.command(f"-Dlog4j2.configurationFile={cluster.logging_file()}", "-XX:TieredStopAtLevel=1")
    words += ["kafka.tools.StorageTool", "format", "-t", cluster.cluster_id]
    words += ["-c", str(cluster.properties_file(node))]
    if cluster.spec.security is Security.SASL:
        for user, password in passwords.items():
            if user != CONTROLLER:
                words += ["--add-scram", f"{SCRAM}=[name={user},password={password}]"]
    return words


def format_all(kit: Kit, clusters: Sequence[Cluster], passwords: Mapping[str, Mapping[str, str]]) -> None:
    """Format the first node of each cluster, side by side; the others get the same bootstrap metadata."""
    running: list[tuple[Cluster, subprocess.Popen[str]]] = []
    try:
        for cluster in clusters:
            # Through a file that only its owner reads: passwords don't belong in the list of processes.
            arguments = cluster.secret_file("format.args")
            words = format_command(cluster, kit, passwords[cluster.name])
            write(arguments, "\n".join(_quote(word) for word in words[1:]), secret=True)
            running.append((cluster, _tool(words[0], arguments)))
        for cluster, process in running:
            said, _ = process.communicate()
            if process.returncode:
                raise LabError(
                    f"Kafka's storage tool refused to format {cluster.name}: {_last(said)}",
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


def _tool(java: str, arguments: Path) -> subprocess.Popen[str]:
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


def _copy(cluster: Cluster, first: Node, node: Node) -> None:
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


def _last(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if not line.startswith("at ")]
    return errors[-1] if errors else "it said nothing"
