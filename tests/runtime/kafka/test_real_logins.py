"""Kerberos with a real KDC, and IAM with signed tokens, at a real broker; for longer than both live."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from planner.kafka.librdkafka import admin
from planner.model.diagnostic import Failure
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.client.settings import WireSettings, wire_settings
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import AuthenticationFailed
from runtime.lab.cluster import LabKafkaCluster, Security
from runtime.lab.kit import find_kit
from runtime.lab.lab import Lab
from tests.iam import HANDLER, REGION, TokenChecker, checking, handler_jar
from tests.kerberos import REALM, Kdc, running_kdc
from tests.labs import JVM, spec
from tests.records import create_topic
from tests.runtime.kafka.real import accepted, batch
from tests.s3 import s3_server

pytestmark = [pytest.mark.integration, pytest.mark.long]

TICKET_S = 4
KEY, SECRET = "AKIAREPL", "a secret key of IAM"
ROLE = "arn:aws:iam::123456789012:role/repl"
_KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
_BEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@dataclass(frozen=True)
class Site:
    """A cluster whose clients log in by Kerberos or by IAM."""

    cluster: LabKafkaCluster
    kdc: Kdc
    keytab: Path
    checker: TokenChecker

    def settings(self, **more: str) -> WireSettings:
        return wire_settings(self.cluster.bootstrap, {"security.protocol": "SASL_PLAINTEXT", **more})

    def kerberos(self, **more: str) -> WireSettings:
        own = {"sasl.kerberos.principal": "repl", "sasl.kerberos.keytab": str(self.keytab)}
        return self.settings(**{"sasl.mechanism": "GSSAPI", **own, **more})

    def iam(self, **more: str) -> WireSettings:
        return self.settings(**{"sasl.mechanism": "AWS_MSK_IAM", "sasl.aws.region": REGION, **more})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("logins")
    kit = find_kit(lambda *_: None)
    with ExitStack() as running:
        moto = running.enter_context(s3_server(folder)).url
        checker = TokenChecker({KEY: SECRET}, moto, lifetime_s=4)
        running.enter_context(checking(checker))
        kdc = running.enter_context(running_kdc(folder / "kdc", TICKET_S))
        broker, keytab = kdc.keytab("kafka/127.0.0.1"), kdc.keytab("repl")
        jar = handler_jar(folder / "iam", kit.java, kit.classpath)
        client = "listener.name.client"
        cluster = spec(
            "dc1",
            security=Security.SASL,
            properties={
                "sasl.enabled.mechanisms": "SCRAM-SHA-512,GSSAPI,OAUTHBEARER",
                "sasl.kerberos.service.name": "kafka",
                f"{client}.gssapi.sasl.jaas.config": f"{_KERBEROS_MODULE} required useKeyTab=true "
                f'storeKey=true keyTab="{broker}" principal="kafka/127.0.0.1@{REALM}";',
                f"{client}.oauthbearer.sasl.jaas.config": f"{_BEARER_MODULE} required;",
                f"{client}.oauthbearer.sasl.server.callback.handler.class": HANDLER,
                "connections.max.reauth.ms": "4000",
                "allow.everyone.if.no.acl.found": "true",
            },
        )
        lab = Lab(folder / "lab")
        running.callback(lab.down, purge=True)
        options = (f"-Djava.security.krb5.conf={kdc.client_settings}", f"-Diam.checker={checker.url}")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JDK_JAVA_OPTIONS", f"-javaagent:{jar}")  # storage is formatted with it, too
            lab.up([replace(cluster, jvm=(*JVM, *options))])
        yield Site(lab.clusters["dc1"], kdc, keytab, checker)


@pytest.fixture(autouse=True)
def environment(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the operator sets where repl runs."""
    monkeypatch.setenv("KRB5_CONFIG", str(site.kdc.client_settings))
    monkeypatch.setenv("KRB5CCNAME", "MEMORY:nobody")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", site.checker.sts or "")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, os.devnull)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)


async def outlives(settings: WireSettings, cluster: LabKafkaCluster, topic: str, sessions: int) -> None:
    """Writes until the broker has seen so many sessions, each of which ends with its ticket or token."""
    create_topic(cluster.client, topic)
    async with await KafkaCluster.open(settings) as opened:
        used: set[object] = set()
        count = 0
        while len(used) < sessions:
            assert await accepted(opened, topic, 0, batch(b"x")) == count
            used.add(await opened.connection(1, "produce"))
            count += 1
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("way", ["keytab", "user", "role"])
async def test_writes_go_on_for_longer_than_a_ticket_or_token_lives(site: Site, way: str) -> None:
    settings = {
        "keytab": site.kerberos(),
        "user": site.iam(),
        "role": site.iam(**{"sasl.aws.role.arn": ROLE}),
    }[way]
    before = len(site.checker.accepted)
    await outlives(settings, site.cluster, f"orders-{way}", 3)
    keys = set(site.checker.accepted[before:])
    assert {key[:4] for key in keys} == {"keytab": set(), "user": {"AKIA"}, "role": {"ASIA"}}[way]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"sasl.kerberos.service.name": "brokers"}, "Server brokers/127.0.0.1@LAB.EXAMPLE not found"),
        (
            {"sasl.kerberos.principal": "nobody"},
            r"gave no credentials of nobody.*check sasl\.kerberos\.keytab",
        ),
        ({"sasl.kerberos.keytab": "/no/such.keytab"}, "/no/such.keytab cannot be read: No such file"),
        (
            {"sasl.kerberos.keytab": "", "sasl.kerberos.principal": ""},
            r"this machine has no tickets.*set sasl\.kerberos\.keytab",
        ),
    ],
)
async def test_kerberos_says_what_is_wrong(site: Site, more: dict[str, str], why: str) -> None:
    with pytest.raises(AuthenticationFailed, match=why):
        await KafkaCluster.open(site.kerberos(**more))


async def test_a_principal_that_was_removed_or_whose_keys_changed_is_refused(site: Site) -> None:
    gone, old = site.kdc.keytab("gone"), site.kdc.keytab("old")
    site.kdc.administer("delprinc -force gone")
    site.kdc.administer("cpw -randkey old")
    for name, keytab, why in (
        ("gone", gone, "not found in Kerberos database"),
        ("old", old, "credentials|Preauth"),
    ):
        more = {"sasl.kerberos.principal": name, "sasl.kerberos.keytab": str(keytab)}
        with pytest.raises(AuthenticationFailed, match=why):
            await KafkaCluster.open(site.kerberos(**more))


async def test_iam_says_what_is_wrong(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        AuthenticationFailed, match=r"signed for another service or region|not an address of MSK"
    ):
        await KafkaCluster.open(site.iam(**{"sasl.aws.region": "us-east-1"}))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another secret key")
    with pytest.raises(AuthenticationFailed, match="the signature does not match") as refused:
        await KafkaCluster.open(site.iam())
    assert "another secret key" not in str(refused.value)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(AuthenticationFailed, match=r"AWS_MSK_IAM.*found no credentials"):
        await KafkaCluster.open(site.iam())


def test_clients_of_librdkafka_log_in_by_iam_and_say_that_they_have_no_kerberos(site: Site) -> None:
    client = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.aws.region": REGION,
    }
    endpoint = ClusterEndpoint("dc1", site.cluster.bootstrap, client)
    assert admin(endpoint).list_topics(timeout=10).cluster_id == site.cluster.cluster_id
    kerberos = ClusterEndpoint("dc1", site.cluster.bootstrap, client | {"sasl.mechanism": "GSSAPI"})
    with pytest.raises(Failure, match="no Kerberos"):
        admin(kerberos)
