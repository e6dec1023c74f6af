"""The files with the new address of a wave: what each says, and that none has a secret."""

from typing import Any

import pytest
import yaml

from planner.config.handout import NewAddress, handed_out
from planner.model.topology import Cluster, HandOut

CLIENT: dict[str, Any] = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "repl",
    "sasl.password": "hunter2",
}
ADDRESS = NewAddress(
    "to-cloud",
    "billing.eu",
    Cluster("cloud", bootstrap="a:1,b:2", client=CLIENT),
    {"orders": "dc1.orders", "refunds": "refunds"},
    ("billing",),
    (3, 1, 2),
)
PROPERTIES = """\
# wave billing.eu of the cutover to-cloud: its clients go to cloud
# topics: dc1.orders, refunds
# orders is dc1.orders there
# groups: billing
bootstrap.servers=a:1,b:2
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
isolation.level=read_committed
"""
MANIFEST = {"bootstrap.servers": "a:1,b:2", "client.properties": PROPERTIES}
KROXYLICIOUS = {
    "virtualClusters": [
        {
            "name": "to-cloud-billing-eu",
            "targetCluster": {"bootstrapServers": "a:1,b:2"},
            "gateways": [{"name": "default", "portIdentifiesNode": {"bootstrapAddress": "gw:9192"}}],
        }
    ]
}
GATEWAY = {
    "gateway": {
        "streamingDomains": [
            {
                "name": "cloud",
                "type": "kafka",
                "kafkaCluster": {
                    "name": "cloud",
                    "nodeIdRanges": [{"name": "brokers", "start": 1, "end": 3}],
                    "bootstrapServers": [
                        {"id": "cloud-1", "endpoint": "a:1"},
                        {"id": "cloud-2", "endpoint": "b:2"},
                    ],
                },
            }
        ],
        "routes": [
            {
                "name": "to-cloud-billing-eu",
                "endpoint": "gw:9192",
                "brokerIdentificationStrategy": {"type": "port"},
                "streamingDomain": {"name": "cloud", "bootstrapServerId": "cloud-1"},
                "security": {"auth": "passthrough"},
            }
        ],
    }
}
METADATA = {"name": "to-cloud-billing-eu"}


def test_the_settings_of_a_client() -> None:
    assert handed_out(HandOut("x"), ADDRESS) == PROPERTIES


@pytest.mark.parametrize(
    ("form", "tree"),
    [
        ("config_map", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": METADATA, "data": MANIFEST}),
        ("secret", {"apiVersion": "v1", "kind": "Secret", "metadata": METADATA, "stringData": MANIFEST}),
        ("kroxylicious", KROXYLICIOUS),
        ("confluent_gateway", GATEWAY),
    ],
)
def test_each_reader_of_yaml_takes_the_other_files(form: Any, tree: dict[str, Any]) -> None:
    text = handed_out(HandOut("x", form, "gw:9192"), ADDRESS)
    assert yaml.safe_load(text) == tree
    assert "hunter2" not in text


def test_no_name_makes_a_line_of_its_own() -> None:
    odd = NewAddress("c", "w", ADDRESS.cluster, {"a": "a"}, ("g\nsasl.jaas.config=evil",), ())
    lines = handed_out(HandOut("x"), odd).splitlines()
    assert not [line for line in lines if line.startswith("sasl.jaas")]
