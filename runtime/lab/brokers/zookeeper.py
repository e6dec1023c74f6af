"""This module runs ZooKeeper for the versions of Kafka that need it: one server for each cluster.

ZooKeeper holds the cluster id and the SCRAM users before the first broker starts, as the storage tool writes
them for KRaft.
"""

import base64
import hashlib
import hmac
import json
import secrets
import socket
import subprocess
import time
from collections.abc import Collection, Mapping

from runtime.lab import processes
from runtime.lab.cluster import PLAIN_PASSWORDS, BrokerPorts, LabKafkaCluster
from runtime.lab.files import LabError, render_properties, write
from runtime.lab.kit import Kit

_READY_S = 60.0
_ITERATIONS = 4096
_SERVER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_SHELL = "org.apache.zookeeper.ZooKeeperMain"


def write_settings(cluster: LabKafkaCluster, node: BrokerPorts) -> None:
    """Writes the settings of the cluster's ZooKeeper."""
    settings = {
        "dataDir": str(cluster.home_of(node) / "data"),
        "clientPort": str(node.port),
        "clientPortAddress": cluster.spec.host,
        "tickTime": "500",
        "maxClientCnxns": "0",
        "4lw.commands.whitelist": "srvr,dump",
        "admin.enableServer": "false",
    }
    write(cluster.properties_file(node), render_properties(settings))


def command(kit: Kit, cluster: LabKafkaCluster, node: BrokerPorts, *jvm: str) -> list[str]:
    """Returns the command line of ZooKeeper."""
    words = kit.command(*jvm, "-Dzookeeper.jmx.log4j.disable=true", cluster.mark(node), heap="128m")
    return [*cluster.spec.prefix, *words, _SERVER, str(cluster.properties_file(node))]


def serves(cluster: LabKafkaCluster, node: BrokerPorts) -> bool:
    """Returns whether ZooKeeper serves requests."""
    return _ask(cluster, node, "srvr").startswith("Zookeeper version")


def wait_ready(cluster: LabKafkaCluster, node: BrokerPorts) -> None:
    """Waits until ZooKeeper serves. Raises LabError."""
    deadline = time.monotonic() + _READY_S
    while not serves(cluster, node):
        if time.monotonic() > deadline or not processes.find(cluster.marks):
            raise LabError(
                f"ZooKeeper of {cluster.name} does not answer",
                "see its log",
                where=str(cluster.log_file(node)),
            )
        time.sleep(0.1)


def wait_unregistered(cluster: LabKafkaCluster, brokers: Collection[int]) -> None:
    """Waits until ZooKeeper has forgotten the earlier processes of these brokers. Raises LabError.

    A broker that was killed is registered until its session expires, and a new process under its id ends at
    once while it is.
    """
    assert cluster.zookeeper is not None
    deadline = time.monotonic() + _READY_S
    while True:
        registered = _ask(cluster, cluster.zookeeper, "dump").split()
        left = [broker for broker in brokers if f"/brokers/ids/{broker}" in registered]
        if not left:
            return
        if time.monotonic() > deadline:
            raise LabError(f"ZooKeeper of {cluster.name} still holds broker {left[0]}", "try again")
        time.sleep(0.1)


def prepare(kit: Kit, cluster: LabKafkaCluster, passwords: Mapping[str, str]) -> None:
    """Writes the cluster id and the SCRAM users into the ZooKeeper of a new cluster. Raises LabError."""
    node = cluster.zookeeper
    assert node is not None
    nodes = {"/cluster": "", "/cluster/id": _json({"version": "1", "id": cluster.cluster_id})}
    mechanism = cluster.spec.mechanism
    scram = cluster.spec.security.sasl and mechanism != PLAIN_PASSWORDS
    users = {user: passwords[user] for user in cluster.users} if scram else {}
    if users:
        nodes |= {"/config": "", "/config/users": ""}
    for user, password in users.items():
        nodes[f"/config/users/{user}"] = _json(
            {"version": 1, "config": {mechanism: _credential(mechanism, password)}}
        )
    logging = cluster.logging_options(kit.version)
    processes.spawn(cluster.mark(node), command(kit, cluster, node, *logging), cluster.log_file(node))
    try:
        wait_ready(cluster, node)
        # The commands go through a pipe: the process table must not show credentials.
        done = subprocess.run(
            [*kit.command(*logging, heap="64m"), _SHELL, "-server", f"{cluster.spec.host}:{node.port}"],
            input="".join(f"create {path} {data}\n" for path, data in nodes.items()) + "quit\n",
            capture_output=True,
            text=True,
            timeout=_READY_S,
            check=False,
        )
        missing = [path for path in nodes if f"Created {path}\n" not in done.stdout + done.stderr]
        if missing:
            raise LabError(
                f"ZooKeeper of {cluster.name} did not take {missing[0]}",
                "see its log",
                where=str(cluster.log_file(node)),
            )
    finally:
        processes.stop([cluster.mark(node)], grace=5.0)


def _ask(cluster: LabKafkaCluster, node: BrokerPorts, words: str) -> str:
    """Returns the answer to one of ZooKeeper's four-letter words; an empty text where there is none."""
    try:
        with socket.create_connection((cluster.spec.host, node.port), timeout=2.0) as connection:
            connection.sendall(words.encode())
            parts = []
            while part := connection.recv(65_536):
                parts.append(part)
    except OSError:
        return ""
    return b"".join(parts).decode(errors="replace")


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _credential(mechanism: str, password: str) -> str:
    """Returns a SCRAM credential as brokers keep it (RFC 5802)."""
    name = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    salt = secrets.token_bytes(24)
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, _ITERATIONS)
    stored = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    server = hmac.digest(salted, b"Server Key", name)
    parts = {"salt": salt, "stored_key": stored, "server_key": server}
    texts = ",".join(f"{name}={base64.b64encode(value).decode()}" for name, value in parts.items())
    return f"{texts},iterations={_ITERATIONS}"
