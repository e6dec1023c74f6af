"""How a cluster is reached: declared here once, for the topology and the job."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from runtime.contract.client.stores import Setting
from runtime.contract.spec.shapes import Key, ListShape, RecordName, SettingsShape, SpecStruct, TextShape

_HOST_PORT = r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}"


class ClusterSpec(SpecStruct, frozen=True, kw_only=True):
    """How clients reach one Kafka cluster.

    `id` pins it: a job refuses to use a cluster with another id at this address.
    """

    record: ClassVar = RecordName("cluster", "a cluster")

    bootstrap: Annotated[
        str,
        Key(
            "Brokers to connect to first, `host:port`, separated by commas.",
            ListShape(
                TextShape(
                    "a broker's host:port",
                    rf"\s*{_HOST_PORT}\s*(?:,\s*{_HOST_PORT}\s*)*",
                    "write it as kafka1.example.org:9092",
                ),
                lone=True,
                least=1,
            ),
            example="127.0.0.1:19092",
            converter="bootstrap",
        ),
    ]
    id: Annotated[
        str | None,
        Key(
            "Pins the cluster: any other one is refused.",
            TextShape("a cluster id"),
            example="5L6g3nShT-eMCtK--X86sw",
        ),
    ] = None
    client: Annotated[
        Mapping[str, Setting],
        Key(
            "How to connect, by librdkafka's names; [operations.md](operations.md) lists which are taken. "
            "Credentials may be `{env: VARIABLE}` or `{file: path}`.",
            SettingsShape(client=True, expected="a map of librdkafka's settings"),
            example="{security.protocol: SASL_SSL, sasl.password: {env: DC1_PASSWORD}}",
        ),
    ] = {}
