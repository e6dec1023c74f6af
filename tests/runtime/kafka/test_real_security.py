"""TLS and every SASL mechanism at real brokers, and what a refusal says."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from runtime.contract.client.settings import SecurityProtocol, Tls, TokenCommand, WireSettings
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import (
    AuthenticationFailed,
    Disconnected,
    Malformed,
    Unsupported,
    WireError,
)
from runtime.lab.cluster import Security
from runtime.lab.lab import Lab
from tests.conftest import MakeLab
from tests.labs import spec
from tests.records import create_topic, read
from tests.runtime.kafka.real import accepted, batch, outlives, run, settings_of

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


async def opens(settings: WireSettings) -> str:
    async with await KafkaCluster.open(settings) as cluster:
        return cluster.cluster_id


def refused(settings: WireSettings, error: type[WireError], why: str) -> None:
    with pytest.raises(error, match=why) as failure:
        run(opens(settings))
    assert "hush" not in str(failure.value)


def test_sasl_refusals_say_what_is_wrong(lab_sasl: Lab) -> None:
    dc1 = lab_sasl.clusters["dc1"]
    good = settings_of(dc1)

    refused(settings_of(dc1, **{"sasl.password": "hush"}), AuthenticationFailed, "SCRAM-SHA-512")
    refused(
        settings_of(dc1, **{"sasl.mechanism": "PLAIN"}),
        AuthenticationFailed,
        "UNSUPPORTED_SASL_MECHANISM: PLAIN was asked for, the broker offers SCRAM-SHA-512",
    )
    refused(replace(good, sasl=None), Unsupported, "no sasl.mechanism is set")
    plain = replace(good, security=SecurityProtocol.PLAINTEXT)
    refused(plain, Disconnected, "does this listener want SASL, and security.protocol not?")


async def test_mutual_tls_reads_and_writes_from_files_and_from_text(lab_tls: Lab, fresh: Fresh) -> None:
    dc1 = lab_tls.clusters["dc1"]
    topic = fresh("orders")
    create_topic(dc1.client, topic)
    files = settings_of(dc1)
    assert files.tls is not None
    text = Tls(
        ca_pem=Path(files.tls.ca_location or "").read_text(),
        certificate_pem=Path(files.tls.certificate_location or "").read_text(),
        key_pem=Path(files.tls.key_location or "").read_text(),
    )

    for number, tls in enumerate((files.tls, text)):
        async with await KafkaCluster.open(replace(files, tls=tls)) as cluster:
            large = b"%d" % number * 500_000
            assert await accepted(cluster, topic, 0, batch(large)) == number
    assert [len(record.value or b"") for record in read(dc1.client, topic)] == [500_000, 500_000]


def test_tls_refusals_say_what_is_wrong(lab_tls: Lab, lab: Lab, tmp_path: Path) -> None:
    good = settings_of(lab_tls.clusters["dc1"])
    assert good.tls is not None
    host_unknown = replace(good, bootstrap=(("localhost.localdomain", 1),))

    refused(
        replace(good, tls=dataclasses.replace(good.tls, ca_location=None)),
        AuthenticationFailed,
        "certificate",
    )
    nobody = Tls(ca_location=good.tls.ca_location)
    refused(replace(good, tls=nobody), AuthenticationFailed, "TLS was refused by the broker")
    missing = dataclasses.replace(good.tls, ca_location=str(tmp_path / "no-such.pem"))
    refused(replace(good, tls=missing), Unsupported, r"an ssl.\* setting of the cluster does not work")
    refused(host_unknown, Disconnected, "localhost.localdomain:1")
    plain = replace(good, security=SecurityProtocol.PLAINTEXT)
    refused(plain, (Disconnected, Malformed), "TLS")  # type: ignore[arg-type]
    not_tls = replace(good, bootstrap=settings_of(lab.clusters["dc1"]).bootstrap, connect_timeout_s=5)
    refused(not_tls, Disconnected, "does this listener speak TLS?")


@pytest.mark.long
def test_every_mechanism_and_a_session_that_ends(own_lab: MakeLab, fresh: Fresh) -> None:
    """The broker cuts a connection whose session is over; it is replaced before that."""
    lab = own_lab(
        spec(
            "dc1",
            security=Security.SASL,
            properties={
                "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN,OAUTHBEARER",
                "listener.name.client.plain.sasl.jaas.config": f'{PLAIN} required user_app="hush";',
                "listener.name.client.oauthbearer.sasl.jaas.config": f"{BEARER} required;",
                "connections.max.reauth.ms": "2000",
                "allow.everyone.if.no.acl.found": "true",
            },
        )
    )
    dc1 = lab.clusters["dc1"]
    topic = fresh("orders")
    create_topic(dc1.client, topic)
    bearer = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.config": "principal=app"}
    unsecured = bearer | {"enable.sasl.oauthbearer.unsecure.jwt": "true"}
    token = (
        "import base64, json, time; e = lambda v: base64.urlsafe_b64encode(json.dumps(v).encode())"
        '.rstrip(b"=").decode(); now = time.time(); '
        'print(e({"alg": "none"}) + "." + e({"sub": "app", "iat": now, "exp": now + 60}) + ".")'
    )
    for client in ({"sasl.mechanism": "PLAIN", "sasl.username": "app", "sasl.password": "hush"}, unsecured):
        assert run(opens(settings_of(dc1, **client))) == dc1.cluster_id
    wrong = {"sasl.mechanism": "PLAIN", "sasl.username": "app", "sasl.password": "hush hush"}
    refused(settings_of(dc1, **wrong), AuthenticationFailed, "Invalid username or password")

    def by_command(command: str) -> WireSettings:
        return replace(settings_of(dc1, **unsecured), sasl=TokenCommand(command))

    assert run(opens(by_command(f"{sys.executable} -c '{token}'"))) == dc1.cluster_id
    refused(by_command("echo hush"), AuthenticationFailed, "invalid_token")
    run(outlives(settings_of(dc1), topic, 3))
