"""PURE: a spec becomes server.properties."""

from pathlib import Path

import pytest

from runtime.lab.brokers.storage import server_properties
from runtime.lab.cluster import BrokerPorts, LabClusterSpec, LabKafkaCluster, Listener, Security
from runtime.lab.files import render_properties

PASSWORDS = {"admin": "a-secret", "controller": "c-secret", "repl": "r-secret", "app": "p-secret"}


def cluster(brokers: int = 1, **more: object) -> LabKafkaCluster:
    spec = LabClusterSpec("dc1", brokers=brokers, port=1000, **more)  # type: ignore[arg-type]
    ports = {one.name: 3000 for one in spec.listeners}
    nodes = tuple(
        BrokerPorts(number, 1000 + number, 2000 + number, ports) for number in range(1, brokers + 1)
    )
    return LabKafkaCluster(spec, "an-id", nodes, Path("/lab/dc1"))


def properties(of: LabKafkaCluster, node: int = 1) -> dict[str, str]:
    return server_properties(of, of.node(node), PASSWORDS)


@pytest.mark.parametrize(
    ("brokers", "copies", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")]
)
def test_copies_follow_the_number_of_brokers(brokers: int, copies: str, in_sync: str) -> None:
    told = properties(cluster(brokers))
    assert {told[key] for key in told if key.endswith("replication.factor")} == {copies}
    assert {told[key] for key in told if key.endswith(("min.isr", "min.insync.replicas"))} == {in_sync}


def test_every_node_knows_all_controllers() -> None:
    three = cluster(3)
    assert (
        properties(three, 2)["controller.quorum.voters"]
        == "1@127.0.0.1:2001,2@127.0.0.1:2002,3@127.0.0.1:2003"
    )
    assert properties(three, 2)["listeners"] == "CLIENT://127.0.0.1:1002,CONTROLLER://127.0.0.1:2002"


def test_a_further_listener_is_advertised_elsewhere() -> None:
    told = properties(cluster(listeners=(Listener("LINK", {1: "10.0.0.9:7000"}),)))
    assert told["listeners"] == "CLIENT://127.0.0.1:1001,LINK://127.0.0.1:3000,CONTROLLER://127.0.0.1:2001"
    assert told["advertised.listeners"] == "CLIENT://127.0.0.1:1001,LINK://10.0.0.9:7000"
    assert told["listener.security.protocol.map"] == "CLIENT:PLAINTEXT,LINK:PLAINTEXT,CONTROLLER:PLAINTEXT"


def test_what_was_set_wins() -> None:
    told = properties(cluster(properties={"num.io.threads": "9", "vendor.key": "x"}))
    assert (told["num.io.threads"], told["vendor.key"]) == ("9", "x")


SUPER = "User:admin;User:controller"
USERS = ("admin", "repl", "app")


@pytest.mark.parametrize(
    ("security", "protocol", "authorizer", "users", "super_users", "certificates_of_clients"),
    [
        (Security.PLAIN, "PLAINTEXT", True, (), "User:ANONYMOUS", None),
        (Security.SASL, "SASL_PLAINTEXT", False, USERS, SUPER, None),
        (Security.KERBEROS, "SASL_PLAINTEXT", False, USERS, SUPER, None),
        (Security.KERBEROS_TLS, "SASL_SSL", False, USERS, SUPER, None),
        (Security.SASL_TLS, "SASL_SSL", False, USERS, SUPER, None),
        (Security.TLS, "SSL", True, USERS, "User:admin;User:broker", "required"),
        (Security.SERVER_TLS, "SSL", True, (), "User:ANONYMOUS", None),
    ],
)
def test_each_mode_has_its_users_and_no_listener_with_another_protocol(
    security: Security,
    *,
    protocol: str,
    authorizer: bool,
    users: tuple[str, ...],
    super_users: str,
    certificates_of_clients: str | None,
) -> None:
    made = cluster(security=security, authorizer=authorizer)
    told = properties(made)
    listeners = told["listener.security.protocol.map"].split(",")
    assert {listener.split(":")[1] for listener in listeners} == {protocol}
    assert made.users == users
    assert told["super.users"] == super_users
    assert told["authorizer.class.name"] == "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    assert told.get("ssl.client.auth") == certificates_of_clients
    assert made.settings().get("security.protocol", "PLAINTEXT") == protocol
    assert ("ssl.certificate.location" in made.settings()) == (security is Security.TLS)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_every_listener_of_clients_takes_the_mechanism(mechanism: str) -> None:
    made = cluster(
        security=Security.SASL, mechanism=mechanism, listeners=(Listener("LINK", {1: "10.0.0.9:7000"}),)
    )
    told = properties(made)
    logins = {
        told[f"listener.name.{name}.{mechanism.lower()}.sasl.jaas.config"] for name in ("client", "link")
    }
    (login,) = logins
    assert told["sasl.enabled.mechanisms"] == mechanism
    assert ('user_app="p-secret"' in login) == (mechanism == "PLAIN")
    assert made.settings()["sasl.mechanism"] == mechanism


def test_every_character_survives_java() -> None:
    assert render_properties({"rule": r"RULE:^a\.b$/x/", "log.dirs": "/home/zoë/\U0001f600"}) == (
        "rule=RULE:^a\\\\.b$/x/\nlog.dirs=/home/zo\\u00eb/\\ud83d\\ude00\n"
    )


def test_an_old_version_asks_zookeeper() -> None:
    spec = LabClusterSpec("dc1", port=1000, version="2.8.2", security=Security.SASL)
    node = BrokerPorts(1, 1001, 2001, version="2.8.2")
    of = LabKafkaCluster(spec, "an-id", (node,), Path("/lab/dc1"), BrokerPorts(0, 1150, 1150))
    told = properties(of)
    assert (told["broker.id"], told["zookeeper.connect"]) == ("1", "127.0.0.1:1150")
    assert told["listeners"] == "CLIENT://127.0.0.1:1001"
    assert told["authorizer.class.name"] == "kafka.security.authorizer.AclAuthorizer"
    assert not [key for key in told if "controller" in key or key == "process.roles"]
