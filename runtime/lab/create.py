"""This module creates clusters in the lab's folder, with ports and client settings, and reads them back.

Ports are chosen and checked; for a taken port, the process that holds it is found.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

import msgspec
import yaml

from runtime.lab.brokers import storage
from runtime.lab.brokers.launch import Kits
from runtime.lab.brokers.zookeeper import write_settings as write_zookeeper_settings
from runtime.lab.cluster import (
    ADMIN,
    CONTROLLER,
    ZOOKEEPER,
    BrokerPorts,
    KafkaVersion,
    LabClusterSpec,
    LabKafkaCluster,
    Security,
    process_mark,
)
from runtime.lab.files import LabError, claim, log4j2, render_properties, write
from runtime.lab.ports import free_ports, require_free_port

# Offsets from a cluster's first port: its brokers, their controllers, further listeners.
CONTROLLERS = 100
ZOOKEEPER_PORT = 150
LISTENERS = 200
HINT = "stop it, or let free ports be picked: repl lab up --ports auto"


def assign_ports(
    spec: LabClusterSpec, taken: frozenset[int] = frozenset()
) -> tuple[tuple[BrokerPorts, ...], BrokerPorts | None]:
    """Returns the nodes of a new cluster and its ZooKeeper, where it needs one.

    The ports follow the spec's first port, or are free ones.
    """
    free = free_ports(spec.host, taken, elsewhere=bool(spec.prefix))
    first = spec.port

    def port(offset: int) -> int:
        return next(free) if first is None else first + offset

    nodes = tuple(
        BrokerPorts(
            id=number + 1,
            port=port(number),
            controller_port=port(CONTROLLERS + number),
            listener_ports={
                listener.name: port(LISTENERS + 10 * place + number)
                for place, listener in enumerate(spec.listeners)
            },
            version=spec.version,
        )
        for number in range(spec.brokers)
    )
    if not KafkaVersion.of(spec.version).zookeeper:
        return nodes, None
    shared = port(ZOOKEEPER_PORT)
    return nodes, BrokerPorts(ZOOKEEPER, shared, shared, version=spec.version)


def write_for(cluster: LabKafkaCluster) -> None:
    """Writes the client files of each user of the cluster."""
    for user in cluster.users or (ADMIN,):
        for_java, for_topology = cluster.client_files(user)
        write(for_java, render_properties(cluster.java_client(user)), secret=True)
        write(for_topology, _yaml(cluster.settings(user)))


def topology_file(home: Path) -> Path:
    """Returns the path of the lab's topology file."""
    return home / "topology.yaml"


def write_topology(home: Path, clusters: Mapping[str, LabKafkaCluster]) -> None:
    """Writes the `clusters:` section of a topology for this lab."""
    entries = {}
    for name, cluster in clusters.items():
        client = cluster.settings()
        entries[name] = {"bootstrap": cluster.bootstrap} | ({"client": client} if client else {})
    write(topology_file(home), _yaml({"clusters": entries}))


def _yaml(value: object) -> str:
    text = yaml.safe_dump(value, sort_keys=False, default_flow_style=False)
    assert isinstance(text, str)
    return text


RECORD = "cluster.json"

# Brokers log warnings only. For more, change the level in the cluster's log4j2.properties and restart it.
_LOGGING = f"""\
{log4j2("WARN")}\
logger.shutdown.name=org.apache.kafka.common.utils.AppInfoParser
logger.shutdown.level=ERROR
"""
_OLD_LOGGING = """\
log4j.rootLogger=WARN, OUT
log4j.appender.OUT=org.apache.log4j.ConsoleAppender
log4j.appender.OUT.layout=org.apache.log4j.PatternLayout
log4j.appender.OUT.layout.ConversionPattern=%d{ISO8601} %p %m (%c{1})%n
log4j.logger.org.apache.kafka.common.utils.AppInfoParser=ERROR
"""
_LOG4J_1, _LOG4J_2 = KafkaVersion(3, 9, 0), KafkaVersion(4, 0, 0)


def load_all(home: Path) -> dict[str, LabKafkaCluster]:
    """Returns the existing clusters by name; a cluster whose creation was not completed does not exist."""
    clusters = (_load(path) for path in sorted(home.glob(f"*/{RECORD}")))
    return {cluster.name: cluster for cluster in clusters}


class _Node(msgspec.Struct, frozen=True):
    id: int


class _Identity(msgspec.Struct, frozen=True):
    """The part of a cluster's record that every version of the lab can read."""

    cluster_id: str
    nodes: tuple[_Node, ...]
    zookeeper: _Node | None = None


def marks(home: Path) -> dict[str, list[str]]:
    """Returns the marks of all processes of a lab, by cluster, also of clusters of another version of it."""
    marks_by_cluster: dict[str, list[str]] = {}
    for path in sorted(home.glob(f"*/{RECORD}")):
        try:
            identity = msgspec.json.decode(path.read_bytes(), type=_Identity)
        except msgspec.DecodeError as problem:
            raise LabError(
                f"does not say which processes the cluster has: {problem}",
                "end the processes whose command line names its folder, then remove the folder",
                where=str(path),
            ) from problem
        nodes = identity.nodes if identity.zookeeper is None else (*identity.nodes, identity.zookeeper)
        marks_by_cluster[path.parent.name] = [process_mark(identity.cluster_id, node.id) for node in nodes]
    return marks_by_cluster


def _load(path: Path) -> LabKafkaCluster:
    try:
        record = msgspec.json.decode(path.read_bytes(), type=dict[str, object])
        record["folder"] = path.parent
        return msgspec.convert(record, LabKafkaCluster, str_keys=True, dec_hook=lambda _type, folder: folder)
    except (msgspec.DecodeError, LabError) as problem:
        raise LabError(
            f"is not a cluster of this version of the lab: {problem}",
            "repl lab down --purge, then up again",
            where=str(path),
        ) from problem


def require_same(cluster: LabKafkaCluster, spec: LabClusterSpec) -> None:
    """Raises LabError if the spec differs from that of the existing cluster, which may hold data."""
    wanted = replace(spec, port=spec.port or cluster.spec.port)
    differing = [
        f"{field.name} {getattr(cluster.spec, field.name)!s}, not {getattr(wanted, field.name)!s}"
        for field in fields(LabClusterSpec)
        if getattr(cluster.spec, field.name) != getattr(wanted, field.name)
    ]
    if differing:
        raise LabError(
            f"{cluster.name} exists already with {'; '.join(differing)}",
            "repl lab down --purge first, or another --home",
            where=str(cluster.folder),
        )


def create(
    home: Path, specs: Sequence[LabClusterSpec], existing: Iterable[LabKafkaCluster], kits: Kits
) -> list[LabKafkaCluster]:
    """Creates clusters that are ready to launch.

    The record is written last: without it the cluster does not exist.
    """
    if specs and "," in str(home):  # log.dirs is a list
        raise LabError(
            "Kafka keeps no data below a path with a comma",
            "choose another --home (or REPL_LAB_HOME)",
            where=str(home),
        )
    made: list[LabKafkaCluster] = []
    passwords: dict[str, Mapping[str, str]] = {}
    taken = {port for cluster in existing for port in _ports(cluster.processes)}
    for spec in specs:
        nodes, zookeeper = assign_ports(spec, frozenset(taken))
        cluster = LabKafkaCluster(spec, storage.new_id(), nodes, home / spec.name, zookeeper)
        require_ports(cluster, cluster.processes)
        taken |= set(_ports(cluster.processes))
        made.append(cluster)
    for cluster in made:
        passwords[cluster.name] = _write_files(cluster)
    storage.format_all(kits, made, passwords)
    for cluster in made:
        store(cluster)
    return made


def store(cluster: LabKafkaCluster) -> None:
    """Writes the record of a cluster. It lies in the cluster's folder and does not name it."""
    record = {item.name: getattr(cluster, item.name) for item in fields(cluster) if item.name != "folder"}
    write(cluster.folder / RECORD, msgspec.json.format(msgspec.json.encode(record), indent=1).decode())


def require_ports(cluster: LabKafkaCluster, nodes: Iterable[BrokerPorts]) -> None:
    """Raises LabError if a port of these nodes is taken."""
    for port in _ports(nodes):
        require_free_port(cluster.spec.host, port, HINT, elsewhere=bool(cluster.spec.prefix))


def discard(cluster: LabKafkaCluster) -> None:
    """Removes the record of a cluster that never came up; its logs stay until the next creation."""
    (cluster.folder / RECORD).unlink(missing_ok=True)


def _ports(nodes: Iterable[BrokerPorts]) -> list[int]:
    return [
        port
        for node in nodes
        for port in dict.fromkeys((node.port, node.controller_port, *node.listener_ports.values()))
    ]


def _write_files(cluster: LabKafkaCluster) -> Mapping[str, str]:
    claim(cluster.folder)
    passwords = _secrets(cluster)
    for version, text in ((_LOG4J_2, _LOGGING), (_LOG4J_1, _OLD_LOGGING)):
        write(cluster.logging_file(version), text)
    if cluster.zookeeper is not None:
        write_zookeeper_settings(cluster, cluster.zookeeper)
    for node in cluster.nodes:
        text = render_properties(storage.server_properties(cluster, node, passwords))
        write(cluster.properties_file(node), text, secret=True)
        (cluster.home_of(node) / "scratch").mkdir()
    write_for(cluster)
    return passwords


def _secrets(cluster: LabKafkaCluster) -> Mapping[str, str]:
    users = cluster.users
    security = cluster.spec.security
    if security.tls:
        from runtime.lab.brokers.certificates import make_certificates  # the one part that needs cryptography

        make_certificates(cluster, users if security is Security.TLS else ())
    if not security.sasl:
        return {}
    passwords = {user: secrets.token_urlsafe(18) for user in (*users, CONTROLLER)}
    for user in users:
        write(cluster.password_file(user), passwords[user], secret=True)
    if security.kerberos:
        for principal in (*users, cluster.service_principal):
            cluster.kdc.keytab(principal)
    return passwords
