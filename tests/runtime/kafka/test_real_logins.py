"""Kerberos with a real KDC, and IAM with signed tokens, at a real broker; for longer than both live."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from planner.kafka.librdkafka import admin
from planner.model.diagnostic import Failure
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.client.settings import WireSettings, wire_settings
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import AuthenticationFailed
from runtime.lab.cluster import LabKafkaCluster
from tests.iam import CLIENT_SECRET
from tests.logins import ROLE, Logins, login_lab
from tests.records import create_topic
from tests.runtime.kafka.real import outlives

pytestmark = [pytest.mark.integration, pytest.mark.long]


@dataclass(frozen=True)
class Site:
    """A cluster whose clients log in by Kerberos or by IAM."""

    logins: Logins

    @property
    def cluster(self) -> LabKafkaCluster:
        return self.logins.lab.clusters["dc1"]

    def kerberos(self, **more: str) -> WireSettings:
        return wire_settings(self.cluster.bootstrap, {**self.logins.kerberos, **more})

    def iam(self, **more: str) -> WireSettings:
        return wire_settings(self.cluster.bootstrap, {**self.logins.iam, **more})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with login_lab(tmp_path_factory.mktemp("logins"), "dc1") as logins:
        yield Site(logins)


@pytest.fixture(autouse=True)
def environment(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in site.logins.environment.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("way", ["keytab", "user", "role"])
async def test_writes_go_on_for_longer_than_a_ticket_or_token_lives(site: Site, way: str) -> None:
    settings = {
        "keytab": site.kerberos(),
        "user": site.iam(),
        "role": site.iam(**{"sasl.aws.role.arn": ROLE}),
    }[way]
    before = len(site.logins.checker.accepted)
    create_topic(site.cluster.client, f"orders-{way}")
    await outlives(settings, f"orders-{way}", 3)
    keys = set(site.logins.checker.accepted[before:])
    assert {key[:4] for key in keys} == {"keytab": set(), "user": {"AKIA"}, "role": {"ASIA"}}[way]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"sasl.kerberos.service.name": "brokers"}, "Server brokers/localhost@LAB.EXAMPLE not found"),
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
    gone, old = site.logins.kdc.keytab("gone"), site.logins.kdc.keytab("old")
    site.logins.kdc.administer("delprinc", "-force", "gone")
    site.logins.kdc.administer("cpw", "-randkey", "old")
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


async def test_a_token_that_has_ended_or_a_client_that_is_not_known_is_named(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = {**site.logins.tokens, "sasl.oauthbearer.client.secret": CLIENT_SECRET}
    settings = wire_settings(site.cluster.bootstrap, {key: str(value) for key, value in tokens.items()})
    with monkeypatch.context() as ended:
        ended.setattr(site.logins.checker, "lifetime_s", -10)
        with pytest.raises(AuthenticationFailed, match="the token has expired"):
            await KafkaCluster.open(settings)
    wrong = {**tokens, "sasl.oauthbearer.client.secret": "another secret"}
    settings = wire_settings(site.cluster.bootstrap, {key: str(value) for key, value in wrong.items()})
    with pytest.raises(AuthenticationFailed, match="403") as refused:
        await KafkaCluster.open(settings)
    assert "another secret" not in str(refused.value)


def test_clients_of_librdkafka_log_in_by_iam_and_say_that_they_have_no_kerberos(site: Site) -> None:
    endpoint = ClusterEndpoint("dc1", site.cluster.bootstrap, site.logins.iam)
    cluster_id = str(admin(endpoint).list_topics(timeout=10).cluster_id)
    assert cluster_id == site.cluster.cluster_id
    kerberos = ClusterEndpoint("dc1", site.cluster.bootstrap, site.logins.kerberos)
    with pytest.raises(Failure, match="no Kerberos"):
        admin(kerberos)
