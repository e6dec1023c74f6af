"""This module describes a created cluster: its files, and the settings with which a client reaches it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, assert_never

from runtime.lab.brokers.security import ADMIN, SCRAM, jaas, java_tls
from runtime.lab.kit.versions import KafkaVersion
from runtime.lab.spec import ZOOKEEPER, BrokerPorts, LabClusterSpec, Security

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
    def users(self) -> tuple[str, ...]:
        return () if self.spec.security is Security.PLAIN else (ADMIN, *self.spec.users)

    @property
    def client(self) -> dict[str, Any]:
        """The administrator's librdkafka settings, with bootstrap.servers and with secrets read from their
        files.
        """
        return self.client_of(ADMIN)

    def client_of(self, user: str) -> dict[str, Any]:
        """Returns the same settings for another user."""
        known = {
            key: value if isinstance(value, str) else Path(value["file"]).read_text()
            for key, value in self.settings(user).items()
        }
        return {"bootstrap.servers": self.bootstrap, **known}

    def settings(self, user: str = ADMIN) -> Settings:
        """Returns what stands below `client:` in a topology; a secret is named by its file."""
        match self.spec.security:
            case Security.PLAIN:
                return {}
            case Security.SASL:
                return {
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": SCRAM,
                    "sasl.username": user,
                    "sasl.password": {"file": str(self.password_file(user))},
                }
            case Security.TLS:
                certificate, key = self.certificate_files(user)
                return {
                    "security.protocol": "SSL",
                    "ssl.ca.location": str(self.secret_file("ca.pem")),
                    "ssl.certificate.location": str(certificate),
                    "ssl.key.location": str(key),
                }
            case never:
                assert_never(never)

    def java_client(self, user: str = ADMIN) -> dict[str, str]:
        """Returns the client settings for Kafka's own tools."""
        known = {"bootstrap.servers": self.bootstrap}
        match self.spec.security:
            case Security.PLAIN:
                return known
            case Security.SASL:
                login = jaas(SCRAM, user, self.password_file(user).read_text())
                return known | {
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": SCRAM,
                    "sasl.jaas.config": login,
                }
            case Security.TLS:
                ours = java_tls(self.secret_file("ca.pem"), self.secret_file(f"{user}.pem"))
                return known | {"security.protocol": "SSL", **ours}
            case never:
                assert_never(never)

    def address(self, node: BrokerPorts) -> str:
        return f"{self.spec.host}:{node.port}"

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
