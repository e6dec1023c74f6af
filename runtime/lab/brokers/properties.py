"""This module makes the server.properties of each node from a cluster's spec. It is pure."""

from collections.abc import Mapping
from typing import assert_never

from runtime.lab.cluster import (
    ADMIN,
    CONTROLLER,
    SCRAM,
    SESSION_TIMEOUT_MS,
    BrokerPorts,
    LabKafkaCluster,
    Security,
    jaas,
    java_tls,
)

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


def render(properties: Mapping[str, str]) -> str:
    """Returns the settings in the format of a properties file."""
    return "".join(f"{key}={_escape(value)}\n" for key, value in properties.items())


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


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
    protocol = {Security.PLAIN: "PLAINTEXT", Security.SASL: "SASL_PLAINTEXT", Security.TLS: "SSL"}[
        cluster.spec.security
    ]
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
    match cluster.spec.security:
        case Security.PLAIN:
            # It takes effect only with an authorizer; then the brokers themselves must keep access.
            return {"super.users": "User:ANONYMOUS"}
        case Security.SASL:
            return _sasl(passwords) if cluster.zookeeper is None else _sasl_with_zookeeper(passwords)
        case Security.TLS:
            return _tls(cluster)
        case never:
            assert_never(never)


def _sasl(passwords: Mapping[str, str]) -> dict[str, str]:
    # A controller can't read the metadata with the SCRAM credentials before it has logged in: it uses PLAIN.
    controller_login = jaas("PLAIN", CONTROLLER, passwords[CONTROLLER], **{CONTROLLER: passwords[CONTROLLER]})
    return {
        "sasl.enabled.mechanisms": SCRAM,
        "sasl.mechanism.inter.broker.protocol": SCRAM,
        f"listener.name.client.{SCRAM.lower()}.sasl.jaas.config": jaas(SCRAM, ADMIN, passwords[ADMIN]),
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": controller_login,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN};User:{CONTROLLER}",
    }


def _sasl_with_zookeeper(passwords: Mapping[str, str]) -> dict[str, str]:
    return {
        "sasl.enabled.mechanisms": SCRAM,
        "sasl.mechanism.inter.broker.protocol": SCRAM,
        f"listener.name.client.{SCRAM.lower()}.sasl.jaas.config": jaas(SCRAM, ADMIN, passwords[ADMIN]),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:{ADMIN}",
    }


def _tls(cluster: LabKafkaCluster) -> dict[str, str]:
    return {
        **java_tls(cluster.secret_file("ca.pem"), cluster.secret_file("broker.pem")),
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
        "super.users": f"User:{ADMIN};User:broker",
    }
