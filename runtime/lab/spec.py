"""This module declares the spec of a lab cluster and the record of a created one, as plain data on disk."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from runtime.lab.errors import LabError
from runtime.lab.kit.versions import KAFKA_VERSION, KafkaVersion

FIRST_PORT = 19092
PORT_STRIDE = 10_000
MAX_BROKERS = 9
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_LISTENER = re.compile(r"[A-Z][A-Z0-9_]*")
RESERVED_LISTENERS = frozenset({"CLIENT", "CONTROLLER"})
SESSION_TIMEOUT_MS = 3000  # ZooKeeper holds a killed broker for so long: it can't start again before
ZOOKEEPER = 0  # the node id of ZooKeeper, where a cluster has one; brokers count from 1


class Security(StrEnum):
    """These are the ways in which clients authenticate."""

    PLAIN = "plain"
    SASL = "sasl"
    TLS = "tls"


@dataclass(frozen=True, slots=True)
class Listener:
    """A Listener is a further listener that advertises other addresses than its own, for example those of
    a proxy.
    """

    name: str
    advertised: Mapping[int, str]  # node → host:port


@dataclass(frozen=True, slots=True)
class LabClusterSpec:
    """A LabClusterSpec holds everything that can be chosen about one cluster."""

    name: str
    brokers: int = 1
    security: Security = Security.PLAIN
    port: int | None = None  # of the first broker, the others follow; None picks free ones
    host: str = "127.0.0.1"
    properties: Mapping[str, str] = field(default_factory=dict)  # these override the broker's defaults
    users: tuple[str, ...] = ("repl", "app")  # beside admin; sasl and tls
    listeners: tuple[Listener, ...] = ()
    prefix: tuple[str, ...] = ()  # a command that runs java elsewhere: ip netns exec NAME
    heap: str = "512m"
    jvm: tuple[str, ...] = ()
    version: str = KAFKA_VERSION  # of the oldest broker, once brokers were started with another version

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise LabError(
                f"{self.name!r} is not a name for a cluster",
                "use letters, digits, - and _, for example dc1",
            )
        if not 1 <= self.brokers <= MAX_BROKERS:
            raise LabError(f"{self.brokers} brokers are not possible", f"choose 1 to {MAX_BROKERS}")
        for listener in self.listeners:
            if not _LISTENER.fullmatch(listener.name) or listener.name in RESERVED_LISTENERS:
                raise LabError(
                    f"{listener.name!r} is not a name for a listener",
                    "use capital letters, digits and _, for example LINK",
                )
        if self.security is Security.TLS and not KafkaVersion.of(self.version).pem:
            raise LabError(
                f"Kafka {self.version} does not read certificates as PEM files, which the lab makes",
                "choose version 2.7.0 or newer for --security tls",
            )
        KafkaVersion.of(self.version)


@dataclass(frozen=True, slots=True)
class BrokerPorts:
    """A BrokerPorts holds the ports of one broker."""

    id: int
    port: int
    controller_port: int
    listener_ports: Mapping[str, int] = field(default_factory=dict)
    version: str = KAFKA_VERSION


@dataclass(frozen=True, slots=True)
class StoredLabCluster:
    """A StoredLabCluster is the file that is kept of a created cluster."""

    spec: LabClusterSpec
    cluster_id: str
    nodes: tuple[BrokerPorts, ...]
    zookeeper: BrokerPorts | None = None


def default_ports(taken: Iterable[int]) -> Iterable[int]:
    """Returns 19092, 29092, … without the ports of other clusters of the lab."""
    used = set(taken)
    return (port for port in range(FIRST_PORT, 65_000, PORT_STRIDE) if port not in used)
