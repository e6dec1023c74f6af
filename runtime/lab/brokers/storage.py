"""This module prepares the files of a new cluster's brokers: server.properties and storage.

`server_properties` makes the settings of each node from the cluster's spec; it is pure. Kafka's tool formats
the storage once; other nodes, and later clusters of the same kind, get copies.
"""

import base64
import os
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from runtime.lab.brokers import zookeeper
from runtime.lab.brokers.launch import Kits
from runtime.lab.cluster import (
    ADMIN,
    CONTROLLER,
    PLAIN_PASSWORDS,
    SESSION_TIMEOUT_MS,
    BrokerPorts,
    KafkaVersion,
    LabKafkaCluster,
    Security,
    jaas,
    java_tls,
    kerberos_jaas,
)
from runtime.lab.files import LabError, write
from runtime.lab.kit import Kit

# A lab uses few threads, little memory, and short housekeeping intervals, so that tests need not wait.
_SMALL = {
    "num.network.threads": "2",
    "num.io.threads": "4",
    "num.recovery.threads.per.data.dir": "2",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "2000",
    "log.cleaner.backoff.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # A killed broker can't register again under its id before this time has passed.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "auto.create.topics.enable": "false",
    # The default of 500 makes a third of the work of an idle controller.
    "metadata.max.idle.interval.ms": "5000",
}


def server_properties(
    cluster: LabKafkaCluster, node: BrokerPorts, passwords: Mapping[str, str]
) -> dict[str, str]:
    """Returns all settings of a broker; those of the spec override the others."""
    identity = _kraft(cluster, node) if cluster.zookeeper is None else _zookeeper(cluster, node)
    return {
        **identity,
        **_replication(len(cluster.nodes)),
        **_SMALL,
        **_security(cluster, passwords),
        **cluster.spec.properties,
    }


def _kraft(cluster: LabKafkaCluster, node: BrokerPorts) -> dict[str, str]:
    host = cluster.spec.host
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.id),
        "controller.quorum.voters": ",".join(
            f"{each.id}@{host}:{each.controller_port}" for each in cluster.nodes
        ),
        "controller.listener.names": "CONTROLLER",
        **_listeners(cluster, node, {"CONTROLLER": node.controller_port}),
    }


def _zookeeper(cluster: LabKafkaCluster, node: BrokerPorts) -> dict[str, str]:
    assert cluster.zookeeper is not None
    return {
        "broker.id": str(node.id),
        "zookeeper.connect": cluster.address(cluster.zookeeper),
        "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
        **_listeners(cluster, node, {}),
    }


def _listeners(cluster: LabKafkaCluster, node: BrokerPorts, controller: Mapping[str, int]) -> dict[str, str]:
    protocol = cluster.spec.security.protocol
    ports = {"CLIENT": node.port, **node.listener_ports, **controller}
    advertised = {"CLIENT": cluster.address(node)} | {
        listener.name: listener.advertised[node.id] for listener in cluster.spec.listeners
    }
    return {
        "log.dirs": str(cluster.home_of(node) / "data"),
        "listeners": ",".join(f"{name}://{cluster.spec.host}:{port}" for name, port in ports.items()),
        "advertised.listeners": ",".join(f"{name}://{address}" for name, address in advertised.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name in ports),
        "inter.broker.listener.name": "CLIENT",
    }


def _replication(brokers: int) -> dict[str, str]:
    """Returns the usual replication settings: from three brokers on, three replicas, two in sync."""
    copies, in_sync = str(min(3, brokers)), "2" if brokers >= 3 else "1"
    return {
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def _security(cluster: LabKafkaCluster, passwords: Mapping[str, str]) -> dict[str, str]:
    spec = cluster.spec
    settings = _tls(cluster) if spec.security.tls else {}
    if spec.security.sasl:
        settings |= _sasl(cluster, passwords)
    if spec.security.sasl or spec.authorizer:
        kraft = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        before = "kafka.security.authorizer.AclAuthorizer"
        settings["authorizer.class.name"] = kraft if cluster.zookeeper is None else before
    # Without an authorizer it has no effect. With one, the brokers themselves must keep access.
    settings["super.users"] = ";".join(f"User:{name}" for name in _super_users(cluster))
    return settings


def _super_users(cluster: LabKafkaCluster) -> tuple[str, ...]:
    if cluster.spec.security.sasl:
        return (ADMIN, CONTROLLER) if cluster.zookeeper is None else (ADMIN,)
    return (ADMIN, "broker") if cluster.spec.security is Security.TLS else ("ANONYMOUS",)


def _sasl(cluster: LabKafkaCluster, passwords: Mapping[str, str]) -> dict[str, str]:
    mechanism = cluster.spec.mechanism
    # The brokers keep SCRAM's users in the metadata, and read those of PLAIN from this login.
    users = {user: passwords[user] for user in cluster.users} if mechanism == PLAIN_PASSWORDS else {}
    login = jaas(mechanism, ADMIN, passwords[ADMIN], **users)
    names = ("CLIENT", *(listener.name for listener in cluster.spec.listeners))
    logins = {mechanism: login}
    if cluster.spec.security.kerberos:
        keytab = cluster.kdc.keytab_file(cluster.service_principal)
        logins["GSSAPI"] = kerberos_jaas(cluster.service_principal, keytab)
    settings = {
        "sasl.enabled.mechanisms": ",".join(logins),
        "sasl.mechanism.inter.broker.protocol": mechanism,
        **{
            f"listener.name.{name.lower()}.{mechanism.lower()}.sasl.jaas.config": login
            for name in names
            for mechanism, login in logins.items()
        },
    }
    if "GSSAPI" in logins:
        settings["sasl.kerberos.service.name"] = "kafka"
    if cluster.zookeeper is not None:
        return settings
    # A controller can't read the metadata with the SCRAM credentials before it has logged in: it uses PLAIN.
    controller = {CONTROLLER: passwords[CONTROLLER]}
    return settings | {
        "listener.name.controller.sasl.enabled.mechanisms": PLAIN_PASSWORDS,
        "sasl.mechanism.controller.protocol": PLAIN_PASSWORDS,
        "listener.name.controller.plain.sasl.jaas.config": jaas(
            PLAIN_PASSWORDS, CONTROLLER, passwords[CONTROLLER], **controller
        ),
    }


def _tls(cluster: LabKafkaCluster) -> dict[str, str]:
    settings = java_tls(cluster.secret_file("ca.pem"), cluster.secret_file("broker.pem"))
    if cluster.spec.security is Security.TLS:
        settings["ssl.client.auth"] = "required"
        settings["ssl.principal.mapping.rules"] = "RULE:^CN=([^,]+).*$/$1/,DEFAULT"
    return settings


_STORED = "bootstrap.checkpoint"  # the metadata of a new cluster, beside the jars


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
    if cluster.spec.security.sasl and cluster.spec.mechanism != PLAIN_PASSWORDS:
        for user, password in passwords.items():
            if user != CONTROLLER:
                words += ["--add-scram", f"{cluster.spec.mechanism}=[name={user},password={password}]"]
    return words


def format_all(
    kits: Kits, clusters: Sequence[LabKafkaCluster], passwords: Mapping[str, Mapping[str, str]]
) -> None:
    """Formats the first node of each cluster, in parallel; the other nodes get the same bootstrap metadata.

    The tool writes SCRAM users and refuses chosen settings that Kafka does not accept. For a cluster with
    neither, what it writes depends on the version alone. It is stored beside the jars, for later clusters.

    A cluster with ZooKeeper needs no format: its id and its users are written to ZooKeeper.

    Raises LabError.
    """
    for cluster in clusters:
        if cluster.zookeeper is not None:
            zookeeper.prepare(kits[cluster.spec.version], cluster, passwords[cluster.name])
    clusters = [cluster for cluster in clusters if cluster.zookeeper is None]
    stored = {
        cluster.name: kits[cluster.spec.version].jars / _STORED
        for cluster in clusters
        if not cluster.spec.security.sasl and not cluster.spec.properties
    }
    ready = {name for name, checkpoint in stored.items() if checkpoint.is_file()}
    _format_with_tool(kits, [cluster for cluster in clusters if cluster.name not in ready], passwords)
    for cluster in clusters:
        made = _first_metadata(cluster, cluster.nodes[0])
        if cluster.name in ready:
            _copy(stored[cluster.name], cluster, cluster.nodes[0])
        elif cluster.name in stored:
            _store(made, stored[cluster.name])
        for node in cluster.nodes[1:]:
            _copy(made, cluster, node)


def _format_with_tool(
    kits: Kits, clusters: Sequence[LabKafkaCluster], passwords: Mapping[str, Mapping[str, str]]
) -> None:
    running: list[tuple[LabKafkaCluster, subprocess.Popen[str]]] = []
    try:
        for cluster in clusters:
            # The arguments are passed in a private file: the process table must not show passwords.
            arguments = cluster.secret_file("format.args")
            words = format_command(cluster, kits[cluster.spec.version], passwords[cluster.name])
            quoted = [word.replace("\\", "\\\\").replace('"', '\\"') for word in words[1:]]
            write(arguments, "".join(f'"{word}"\n' for word in quoted), secret=True)
            tool = subprocess.Popen(
                [words[0], f"@{arguments}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            running.append((cluster, tool))
        for cluster, process in running:
            output, _ = process.communicate()
            if process.returncode:
                lines = [line.strip() for line in output.splitlines() if line.strip()]
                errors = [line for line in lines if not line.startswith("at ")] or ["it said nothing"]
                raise LabError(
                    f"Kafka's storage tool refused to format {cluster.name}: {errors[-1]}",
                    "correct what was set with --set",
                    where=cluster.name,
                )
            cluster.secret_file("format.args").unlink()
    finally:
        for _, process in running:
            with process:
                process.kill()


def _store(made: Path, stored: Path) -> None:
    temporary = stored.with_name(f".{stored.name}.{os.getpid()}")
    with suppress(OSError):  # without a stored one, each cluster is formatted by the tool
        try:
            shutil.copyfile(made, temporary)
            temporary.replace(stored)
        finally:
            temporary.unlink(missing_ok=True)


def _first_metadata(cluster: LabKafkaCluster, node: BrokerPorts) -> Path:
    version = KafkaVersion.of(cluster.spec.version)
    return cluster.home_of(node) / "data" / version.first_metadata


def _copy(checkpoint: Path, cluster: LabKafkaCluster, node: BrokerPorts) -> None:
    data = cluster.home_of(node) / "data"
    copied = _first_metadata(cluster, node)
    copied.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(checkpoint, copied)
    facts = {
        "version": "1",
        "cluster.id": cluster.cluster_id,
        "node.id": str(node.id),
        "directory.id": new_id(),
    }
    write(data / "meta.properties", "".join(f"{key}={value}\n" for key, value in facts.items()))
