"""This module describes lab clusters: spec, Kafka version and files, and how a client reaches them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias

from runtime.lab.files import LabError
from runtime.lab.kdc import FOLDER, REALM, Kdc

KAFKA_VERSION = "4.4.0"  # the default version of a lab
_PATTERN = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})")


class KafkaVersion(NamedTuple):
    """A KafkaVersion is a release of Apache Kafka; versions compare in the order of their release lines."""

    major: int
    minor: int
    patch: int

    @classmethod
    def of(cls, text: str) -> Self:
        """Reads a version such as 2.8.2. Raises LabError for one that the lab cannot run."""
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise LabError(f"{text!r} is not a version of Kafka", "write three numbers, for example 3.9.1")
        version = cls(*map(int, match.groups()))
        if version < OLDEST:
            raise LabError(f"Kafka {text} is too old for the lab", f"choose {OLDEST} or newer")
        return version

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    @property
    def zookeeper(self) -> bool:
        """Whether the lab runs this version with ZooKeeper.

        KRaft is ready for production from 3.3 on, and its storage tool writes SCRAM users from 3.5 on.
        """
        return self < (3, 5, 0)

    @property
    def shell(self) -> bool:
        """Whether Kafka's shell, which reads KRaft's metadata, is a tool; 4.4.0 was published without it."""
        return not self.zookeeper and self < (4, 4, 0)

    @property
    def first_metadata(self) -> str:
        """Where `kafka-storage format` writes the metadata with which a cluster begins, below `log.dirs`.

        From 4.4 on it is the first snapshot of the metadata log (KIP-1170).
        """
        if self < (4, 4, 0):
            return "bootstrap.checkpoint"
        return "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"

    @property
    def log4j2(self) -> bool:
        """Whether brokers log with Log4j 2; older ones use the API of Log4j 1."""
        return self >= (4, 0, 0)

    @property
    def pem(self) -> bool:
        """Whether brokers read certificates and keys as PEM files.

        PEM files came with 2.7 (KIP-651). Keys without a password, as the lab's, are read from 3.3 on.
        """
        return self >= (3, 3, 0)


OLDEST = KafkaVersion(2, 4, 0)
DEFAULT = KafkaVersion.of(KAFKA_VERSION)


FIRST_PORT = 19092
PORT_STRIDE = 10_000
MAX_BROKERS = 9
LOOPBACK = "127.0.0.1"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_LISTENER = re.compile(r"[A-Z][A-Z0-9_]*")
RESERVED_LISTENERS = frozenset({"CLIENT", "CONTROLLER"})
SESSION_TIMEOUT_MS = 3000  # ZooKeeper holds a killed broker for so long: it can't start again before
ZOOKEEPER = 0  # the node id of ZooKeeper, where a cluster has one; brokers count from 1


class Security(StrEnum):
    """These are the ways in which clients authenticate."""

    PLAIN = "plain"
    SASL = "sasl"
    TLS = "tls"  # mutual: clients have certificates
    SASL_TLS = "sasl-tls"
    SERVER_TLS = "server-tls"  # brokers alone have certificates
    KERBEROS = "kerberos"  # clients show tickets; the lab itself and the brokers log in as with SASL
    KERBEROS_TLS = "kerberos-tls"

    @property
    def kerberos(self) -> bool:
        return self in (Security.KERBEROS, Security.KERBEROS_TLS)

    @property
    def sasl(self) -> bool:
        return self in (Security.SASL, Security.SASL_TLS) or self.kerberos

    @property
    def tls(self) -> bool:
        return self in (Security.TLS, Security.SASL_TLS, Security.SERVER_TLS, Security.KERBEROS_TLS)

    @property
    def protocol(self) -> str:
        """Kafka's name of the protocol."""
        if self.sasl:
            return "SASL_SSL" if self.tls else "SASL_PLAINTEXT"
        return "SSL" if self.tls else "PLAINTEXT"


SCRAM = "SCRAM-SHA-512"
PLAIN_PASSWORDS = "PLAIN"  # the mechanism that shows the password to the broker
MECHANISMS = (PLAIN_PASSWORDS, "SCRAM-SHA-256", SCRAM)


@dataclass(frozen=True, slots=True)
class Listener:
    """A Listener is a further listener that advertises other addresses than its own, such as a proxy's."""

    name: str
    advertised: Mapping[int, str]  # node → host:port


@dataclass(frozen=True, slots=True)
class LabClusterSpec:
    """Holds everything that can be chosen about one cluster."""

    name: str
    brokers: int = 1
    security: Security = Security.PLAIN
    port: int | None = None  # of the first broker, the others follow; None picks free ones
    host: str = LOOPBACK
    properties: Mapping[str, str] = field(default_factory=dict)  # these override the broker's defaults
    users: tuple[str, ...] = ("repl", "app")  # beside admin; where clients log in
    listeners: tuple[Listener, ...] = ()
    prefix: tuple[str, ...] = ()  # a command that runs java elsewhere: ip netns exec NAME
    heap: str = "512m"
    jvm: tuple[str, ...] = ()
    version: str = KAFKA_VERSION  # of the oldest broker, once brokers were started with another version
    mechanism: str = SCRAM  # of sasl and sasl-tls
    authorizer: bool = False  # those with sasl always have one

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise LabError(
                f"{self.name!r} is not a name for a cluster",
                "use letters, digits, - and _, for example dc1",
            )
        if self.name == FOLDER:
            raise LabError(f"{FOLDER} is the folder of the lab's KDC", "choose another name for the cluster")
        if not 1 <= self.brokers <= MAX_BROKERS:
            raise LabError(f"{self.brokers} brokers are not possible", f"choose 1 to {MAX_BROKERS}")
        for listener in self.listeners:
            if not _LISTENER.fullmatch(listener.name) or listener.name in RESERVED_LISTENERS:
                raise LabError(
                    f"{listener.name!r} is not a name for a listener",
                    "use capital letters, digits and _, for example LINK",
                )
        if self.mechanism not in MECHANISMS:
            raise LabError(
                f"{self.mechanism!r} is not a mechanism that the lab has", f"choose {', '.join(MECHANISMS)}"
            )
        if self.security.tls and not KafkaVersion.of(self.version).pem:
            raise LabError(
                f"Kafka {self.version} does not read the lab's keys, which are PEM files without a password",
                f"choose version 3.3.0 or newer for --security {self.security}",
            )
        KafkaVersion.of(self.version)


@dataclass(frozen=True, slots=True)
class BrokerPorts:
    """Holds the ports of one broker."""

    id: int
    port: int
    controller_port: int
    listener_ports: Mapping[str, int] = field(default_factory=dict)
    version: str = KAFKA_VERSION


def default_ports(taken: Iterable[int]) -> Iterable[int]:
    """Returns 19092, 29092, … without the ports of other clusters of the lab."""
    used = set(taken)
    return (port for port in range(FIRST_PORT, 65_000, PORT_STRIDE) if port not in used)


ADMIN = "admin"
CONTROLLER = "controller"
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"


def jaas(mechanism: str, user: str, password: str, **users: str) -> str:
    """Returns a JAAS configuration. `users` are the accounts that a PLAIN server accepts."""
    module = _PLAIN_MODULE if mechanism == PLAIN_PASSWORDS else _SCRAM_MODULE
    accounts = "".join(f' user_{name}="{secret}"' for name, secret in users.items())
    return f'{module} required username="{user}" password="{password}"{accounts};'


def kerberos_jaas(principal: str, keytab: Path) -> str:
    """Returns the JAAS configuration of a principal that has a keytab, a client's or a broker's."""
    return (
        f'{_KERBEROS_MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}"'
        f' principal="{principal}@{REALM}";'
    )


def java_tls(ca: Path, key_and_certificate: Path | None) -> dict[str, str]:
    """Returns Java's TLS settings for PEM files."""
    trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(ca)}
    if key_and_certificate is None:
        return trusted
    return trusted | {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(key_and_certificate)}


def process_mark(cluster_id: str, node_id: int) -> str:
    """Returns the mark of a node's process: a Java property that no other process has."""
    return f"-Drepl.lab={cluster_id}:{node_id}"


def is_zookeeper(mark: str) -> bool:
    """Returns whether a process with this mark is ZooKeeper, and no broker."""
    return mark.endswith(f":{ZOOKEEPER}")


Settings: TypeAlias = dict[str, str | dict[str, str]]


@dataclass(frozen=True, slots=True)
class LabKafkaCluster:
    """A LabKafkaCluster is a created cluster in its folder."""

    spec: LabClusterSpec
    cluster_id: str
    nodes: tuple[BrokerPorts, ...]
    folder: Path
    zookeeper: BrokerPorts | None = None

    @property
    def processes(self) -> tuple[BrokerPorts, ...]:
        """The nodes of all processes: the brokers, and ZooKeeper where the version needs it."""
        return self.nodes if self.zookeeper is None else (*self.nodes, self.zookeeper)

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks of all processes."""
        return tuple(self.mark(node) for node in self.processes)

    def mark(self, node: BrokerPorts) -> str:
        return process_mark(self.cluster_id, node.id)

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions of the brokers, the oldest first; after an upgrade of some there are two."""
        return tuple(sorted({node.version for node in self.nodes}, key=KafkaVersion.of))

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def bootstrap(self) -> str:
        return ",".join(self.address(node) for node in self.nodes)

    @property
    def kdc(self) -> Kdc:
        """The KDC of the lab, which only clusters with Kerberos use."""
        return Kdc(self.folder.parent)

    @property
    def service_principal(self) -> str:
        """The principal of the brokers."""
        return f"kafka/{self.host}"

    @property
    def host(self) -> str:
        """The host in the addresses of brokers.

        Java's clients look up the name of an address for Kerberos, which needs the name that others use.
        """
        kerberos = self.spec.security.kerberos
        return "localhost" if kerberos and self.spec.host == LOOPBACK else self.spec.host

    @property
    def users(self) -> tuple[str, ...]:
        authenticated = self.spec.security.sasl or self.spec.security is Security.TLS
        return (ADMIN, *self.spec.users) if authenticated else ()

    @property
    def client(self) -> dict[str, Any]:
        """Returns the administrator's librdkafka settings, with the secrets that their files hold."""
        return self.client_of(ADMIN)

    def client_of(self, user: str) -> dict[str, Any]:
        """Returns the same settings for another user.

        Packages of librdkafka for Python have no Kerberos: with it, these clients log in by password.
        """
        settings = {
            key: value if isinstance(value, str) else Path(value["file"]).read_text()
            for key, value in self._settings(user, kerberos=False).items()
        }
        return {"bootstrap.servers": self.bootstrap, **settings}

    def settings(self, user: str = ADMIN) -> Settings:
        """Returns what stands below `client:` in a topology; a secret is named by its file."""
        return self._settings(user, self.spec.security.kerberos)

    def _settings(self, user: str, kerberos: bool) -> Settings:
        security = self.spec.security
        if security is Security.PLAIN:
            return {}
        settings: Settings = {"security.protocol": security.protocol}
        if kerberos:
            settings |= {
                "sasl.mechanism": "GSSAPI",
                "sasl.kerberos.principal": user,
                "sasl.kerberos.keytab": str(self.kdc.keytab_file(user)),
            }
        elif security.sasl:
            settings |= self.password_settings(user)
        if security.tls:
            settings["ssl.ca.location"] = str(self.secret_file("ca.pem"))
        if security is Security.TLS:
            certificate, key = self.certificate_files(user)
            settings |= {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
        return settings

    def password_settings(self, user: str) -> Settings:
        """Returns what stands below `client:` for a user who logs in by password."""
        return {
            "security.protocol": self.spec.security.protocol,
            "sasl.mechanism": self.spec.mechanism,
            "sasl.username": user,
            "sasl.password": {"file": str(self.password_file(user))},
        }

    def java_client(self, user: str) -> dict[str, str]:
        """Returns the client settings for Kafka's own tools."""
        security = self.spec.security
        settings = {"bootstrap.servers": self.bootstrap}
        if security is Security.PLAIN:
            return settings
        settings["security.protocol"] = security.protocol
        if security.kerberos:
            settings["sasl.mechanism"] = "GSSAPI"
            settings["sasl.kerberos.service.name"] = "kafka"
            settings["sasl.jaas.config"] = kerberos_jaas(user, self.kdc.keytab_file(user))
        elif security.sasl:
            settings["sasl.mechanism"] = self.spec.mechanism
            settings["sasl.jaas.config"] = jaas(
                self.spec.mechanism, user, self.password_file(user).read_text()
            )
        if security.tls:
            keystore = self.secret_file(f"{user}.pem") if security is Security.TLS else None
            settings |= java_tls(self.secret_file("ca.pem"), keystore)
        return settings

    def address(self, node: BrokerPorts) -> str:
        return f"{self.host}:{node.port}"

    def node(self, number: int) -> BrokerPorts:
        return next(node for node in self.nodes if node.id == number)

    def listener(self, name: str) -> dict[int, str]:
        """Returns the real address of a further listener, by node; a proxy connects to it."""
        return {node.id: f"{self.spec.host}:{node.listener_ports[name]}" for node in self.nodes}

    def home_of(self, node: BrokerPorts) -> Path:
        return self.folder / ("zookeeper" if node.id == ZOOKEEPER else str(node.id))

    def properties_file(self, node: BrokerPorts) -> Path:
        name = "zoo.cfg" if node.id == ZOOKEEPER else "server.properties"
        return self.home_of(node) / name

    def log_file(self, node: BrokerPorts) -> Path:
        return self.home_of(node) / ("zookeeper.log" if node.id == ZOOKEEPER else "broker.log")

    def logging_file(self, version: KafkaVersion) -> Path:
        return self.folder / ("log4j2.properties" if version.log4j2 else "log4j.properties")

    def logging_options(self, version: KafkaVersion) -> tuple[str, ...]:
        """Returns the Java options with which a process of this version finds its logging file."""
        file = self.logging_file(version)
        if version.log4j2:
            return (f"-Dlog4j2.configurationFile={file}",)
        return (f"-Dlog4j.configuration=file:{file}",)

    @property
    def login_options(self) -> tuple[str, ...]:
        """The Java options with which a process finds the KDC, where the cluster has one."""
        if not self.spec.security.kerberos:
            return ()
        return (f"-Djava.security.krb5.conf={self.kdc.client_settings}",)

    def secret_file(self, name: str) -> Path:
        return self.folder / "secrets" / name

    def password_file(self, user: str) -> Path:
        return self.secret_file(f"{user}.password")

    def certificate_files(self, user: str) -> tuple[Path, Path]:
        return self.secret_file(f"{user}.crt"), self.secret_file(f"{user}.key")

    def client_files(self, user: str = ADMIN) -> tuple[Path, Path]:
        """Returns client.properties for Kafka's tools and client.yaml for a topology."""
        folder = self.folder if user == ADMIN else self.folder / "users" / user
        return folder / "client.properties", folder / "client.yaml"
