"""Managed services: recognised by address, logged in to by SASL/PLAIN, and what doctor says of each."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from planner.model.managed_services import service_at
from runtime.lab.cluster import Listener, Security, jaas
from runtime.lab.create import LISTENERS
from runtime.lab.lab import Lab
from runtime.lab.ports import free_ports
from tests.commands import repl
from tests.labs import running_lab, spec

CONNECTION_STRING = (
    "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=RootManageSharedAccessKey;"
    "SharedAccessKey=3yY+dXrM/Vf5Yq1nZ2cQv0bS8KkM4tLwE6uHjR7pXg=="
)
CONFLUENT = "pkc-4r087.us-west2.gcp.confluent.cloud:9092"
EVENT_HUBS = "shop.servicebus.windows.net:9093"


@pytest.mark.parametrize(
    ("addresses", "service"),
    [
        ([CONFLUENT], "Confluent Cloud"),
        (["lkc-1234.DOM4GXYZ.EU-WEST-1.AWS.CONFLUENT.CLOUD:9092"], "Confluent Cloud"),
        (["shop.servicebus.windows.net"], "Azure Event Hubs"),
        (["broker:9092", "shop.servicebus.usgovcloudapi.net.:9093"], "Azure Event Hubs"),
        (["confluent.cloud.example.org:9092"], None),
        (["notconfluent.cloud:9092", "127.0.0.1:9092", ""], None),
    ],
)
def test_a_service_is_recognised_by_its_addresses(addresses: list[str], service: str | None) -> None:
    recognised = service_at(addresses)
    assert (recognised.name if recognised else None) == service


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A broker whose second listener takes what clients of the services send: a key, a connection string."""
    passwords = {"$ConnectionString": CONNECTION_STRING, "ABCDEFGHIJKLMNOP": "s3cr3t/of+an==key"}
    login = jaas("PLAIN", "unused", "unused", **passwords)
    first = next(free_ports())
    site = replace(
        spec(
            "hub",
            security=Security.SASL_TLS,
            mechanism="PLAIN",
            properties={
                "listener.name.link.plain.sasl.jaas.config": login,
                "super.users": ";".join(f"User:{name}" for name in ("admin", "controller", *passwords)),
            },
        ),
        port=first,
        listeners=(Listener("LINK", {1: f"127.0.0.1:{first + LISTENERS}"}),),
    )
    with running_lab(tmp_path_factory.mktemp("services") / "lab", site) as lab:
        yield lab


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.parametrize(
    ("address", "user", "password", "statements"),
    [
        (
            CONFLUENT,
            "ABCDEFGHIJKLMNOP",
            "s3cr3t/of+an==key",
            ("This is Confluent Cloud", "integer ids", "compression.type"),
        ),
        (
            EVENT_HUBS,
            "$ConnectionString",
            CONNECTION_STRING,
            ("This is Azure Event Hubs", "Transactions are in public preview", "gzip"),
        ),
    ],
)
def test_doctor_logs_in_as_to_the_service_and_says_what_it_lacks(
    lab: Lab, tmp_path: Path, address: str, user: str, password: str, statements: tuple[str, ...]
) -> None:
    cluster = lab.clusters["hub"]
    client = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": {"env": "SECRET_OF_THE_SERVICE"},
        "ssl.ca.location": str(cluster.secret_file("ca.pem")),
    }
    hub = {"bootstrap": f"{cluster.listener('LINK')[1]},{address}", "client": client}
    file = tmp_path / "topology.yaml"
    topics = [{"name": "orders", "cluster": "hub", "partitions": 1}]
    site = {"apiVersion": "repl/v1", "name": "site", "clusters": {"hub": hub}, "topics": topics}
    file.write_text(json.dumps(site))
    environment = {"REPL_ALLOW_FILES": str(lab.home)}

    done = repl("doctor", "hub", str(file), env={**environment, "SECRET_OF_THE_SERVICE": password})
    assert done.returncode == 0, done.stderr
    assert all(statement in done.stdout for statement in statements)
    program = repl(
        "doctor", "hub", str(file), "--json", env={**environment, "SECRET_OF_THE_SERVICE": password}
    )
    service = service_at([address])
    assert service is not None
    told = json.loads(program.stdout)["service"]
    assert [limit["source"] for limit in told["limits"]] == [limit.source for limit in service.limits]

    refused = repl("doctor", "hub", str(file), env={**environment, "SECRET_OF_THE_SERVICE": f"{password}x"})
    assert refused.returncode == 1
    assert "PLAIN" in refused.stderr
    assert service.login.split()[0] in refused.stderr
    assert password not in refused.stderr + refused.stdout
