"""Credentials in clear text, and certificates that are not checked."""

import pytest

from planner.graph.lints.security import CLEAR_TEXT, UNCHECKED, security
from planner.model.topology import Cluster, Topology

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
