"""The files that tell clients and gateways their new address when a wave has moved.

No file holds a secret: of the settings of a cluster, only how clients log in goes into it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from planner.model.topology import Cluster, HandOut

# The names of librdkafka that Kafka's Java clients share, and that tell nobody a secret.
LOGIN = ("security.protocol", "sasl.mechanism")


class NewAddress(Struct, frozen=True):
    """What a wave's clients need to know: its topics by their names at the source, and the brokers there."""

    cutover: str
    wave: str
    cluster: Cluster
    topics: Mapping[str, str]
    groups: Sequence[str]
    brokers: Sequence[int]

    @property
    def settings(self) -> dict[str, str]:
        """Returns the settings of Kafka's clients."""
        login = {key: value for key in LOGIN if isinstance(value := self.cluster.client.get(key), str)}
        return {"bootstrap.servers": self.cluster.bootstrap, **login, "isolation.level": "read_committed"}

    @property
    def name(self) -> str:
        """Returns a name as Kubernetes and gateways take it."""
        text = f"{self.cutover}-{self.wave}".lower()
        return "".join(sign if sign.isalnum() and sign.isascii() else "-" for sign in text).strip("-")


def handed_out(handed: HandOut, address: NewAddress) -> str:
    """Returns the text of a handed-out file."""
    match handed.format:
        case "properties":
            return _properties(address)
        case "config_map":
            return _json(_manifest("ConfigMap", "data", address))
        case "secret":
            return _json(_manifest("Secret", "stringData", address))
        case "kroxylicious":
            return _json(_kroxylicious(handed, address))
        case "confluent_gateway":
            return _json(_confluent_gateway(handed, address))


def _properties(address: NewAddress) -> str:
    renamed = [f"# {old} is {new} there" for old, new in sorted(address.topics.items()) if old != new]
    lines = [
        f"# wave {address.wave} of the cutover {address.cutover}: its clients go to {address.cluster.name}",
        f"# topics: {', '.join(sorted(address.topics.values()))}",
        *renamed,
        *([f"# groups: {', '.join(address.groups)}"] if address.groups else []),
        *(f"{key}={value}" for key, value in address.settings.items()),
    ]
    return "".join(f"{_one_line(line)}\n" for line in lines)


def _one_line(text: str) -> str:
    """Returns the text without line ends and other signs that no reader sees."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def _manifest(kind: str, key: str, address: NewAddress) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": address.name},
        key: {
            "bootstrap.servers": address.cluster.bootstrap,
            "client.properties": _properties(address),
        },
    }


def _kroxylicious(handed: HandOut, address: NewAddress) -> dict[str, Any]:
    gateway = {"name": "default", "portIdentifiesNode": {"bootstrapAddress": handed.endpoint}}
    return {
        "virtualClusters": [
            {
                "name": address.name,
                "targetCluster": {"bootstrapServers": address.cluster.bootstrap},
                "gateways": [gateway],
            }
        ]
    }


def _confluent_gateway(handed: HandOut, address: NewAddress) -> dict[str, Any]:
    servers = [
        {"id": f"{address.cluster.name}-{number}", "endpoint": server}
        for number, server in enumerate(address.cluster.bootstrap.split(","), 1)
    ]
    nodes = {
        "name": "brokers",
        "start": min(address.brokers, default=0),
        "end": max(address.brokers, default=0),
    }
    return {
        "gateway": {
            "streamingDomains": [
                {
                    "name": address.cluster.name,
                    "type": "kafka",
                    "kafkaCluster": {
                        "name": address.cluster.name,
                        "nodeIdRanges": [nodes],
                        "bootstrapServers": servers,
                    },
                }
            ],
            "routes": [
                {
                    "name": address.name,
                    "endpoint": handed.endpoint,
                    "brokerIdentificationStrategy": {"type": "port"},
                    "streamingDomain": {"name": address.cluster.name, "bootstrapServerId": servers[0]["id"]},
                    "security": {"auth": "passthrough"},
                }
            ],
        }
    }


def _json(tree: Mapping[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(tree), indent=2).decode() + "\n"
