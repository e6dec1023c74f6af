"""Credentials in clear text, and certificates that are not checked."""

import pytest

from planner.graph.lints.security import CLEAR_TEXT, NOT_USED, UNCHECKED, security
from planner.model.topology import Cluster, Flow, SecretRef, Selection, Setting, Topology

FAR = "kafka.example.org:9092"
TLS = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}


def found(client: dict[str, str], bootstrap: str = FAR) -> list[str]:
    clusters = {"dc1": Cluster("dc1", bootstrap, client=client)}
    return [one.code for one in security(Topology("shop", clusters))]


@pytest.mark.parametrize(
    ("client", "codes"),
    [
        ({}, []),
        ({"security.protocol": "SSL"}, []),
        (TLS, []),
        ({"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}, [CLEAR_TEXT]),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "SCRAM-SHA-512"}, [CLEAR_TEXT]),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}, [CLEAR_TEXT]),
        ({"security.protocol": "SASL_PLAINTEXT"}, [CLEAR_TEXT]),
        ({**TLS, "enable.ssl.certificate.verification": "False"}, [UNCHECKED]),
        ({**TLS, "ssl.endpoint.identification.algorithm": "none"}, [UNCHECKED]),
        ({**TLS, "ssl.endpoint.identification.algorithm": "https"}, []),
        ({"ssl.endpoint.identification.algorithm": "none"}, []),
    ],
)
def test_what_others_on_the_way_can_read_is_warned_of(client: dict[str, str], codes: list[str]) -> None:
    assert found(client) == codes


@pytest.mark.parametrize(
    ("bootstrap", "codes"),
    [("127.0.0.1:9092,[::1]:9092,localhost:1", []), (f"127.0.0.1:9092,{FAR}", [CLEAR_TEXT])],
)
def test_what_stays_on_this_machine_is_not(bootstrap: str, codes: list[str]) -> None:
    assert found({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, bootstrap) == codes


def noted(client: dict[str, Setting]) -> list[str]:
    clusters = {"dc1": Cluster("dc1", "127.0.0.1:1", client=client), "dc2": Cluster("dc2", "127.0.0.1:2")}
    flows = {"f": Flow("f", "dc1", "dc2", Selection(("a",)))}
    return [one.summary for one in security(Topology("shop", clusters, flows=flows)) if one.code == NOT_USED]


def test_settings_that_jobs_do_not_use_are_noted_once_for_a_cluster() -> None:
    (found,) = noted({"client.rack": "r1", "socket.max.fails": "5", "socket.timeout.ms": "5000"})
    assert found.startswith("client of cluster dc1: client.rack is not used by the data path")
    assert "socket.max.fails is not used" in found
    assert "socket.timeout.ms" not in found


@pytest.mark.parametrize(
    "client",
    [
        {},
        {**TLS, "sasl.username": "u", "sasl.password": SecretRef("env", "P"), "ssl.ca.location": "/ca.pem"},
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"},  # by the token command
        {**TLS, "client.rack": "r1"},  # a password is missing: validation tells it
    ],
)
def test_settings_that_jobs_use_are_not(client: dict[str, Setting]) -> None:
    assert noted(client) == []
