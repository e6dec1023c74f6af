"""Credentials, TLS and rights that are not as they should be: each is told apart, with its way out."""

from collections.abc import Callable, Mapping

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from planner.kafka import ClusterEndpoint
from planner.model.observed import (
    ClusterDetailsRequest,
    Observed,
    ObservedCluster,
    TopicConfigsRequest,
    Unreachable,
)
from planner.model.topology import AclRule, QuotaEntity
from runtime.lab.lab import Lab
from tests.endpoints import endpoint
from tests.endpoints import observed as observed_at
from tests.fakes.replacing import replace
from tests.labs import run_tool
from tests.records import create_topic, wait_for

pytestmark = pytest.mark.integration
Fresh = Callable[[str], str]


def observe(
    one: ClusterEndpoint, wanted: ClusterDetailsRequest | None = None, named: frozenset[str] = frozenset()
) -> Observed:
    request = {"dc1": wanted or ClusterDetailsRequest()}
    return observed_at({"dc1": one}, lambda _: request, named={"dc1": named})


def cluster(observed: Observed) -> ObservedCluster:
    found = observed.reachable("dc1")
    assert found is not None, observed.clusters["dc1"]
    return found


def unreachable(one: ClusterEndpoint) -> Unreachable:
    found = observe(one).clusters["dc1"]
    assert isinstance(found, Unreachable), found
    return found


def changed(one: ClusterEndpoint, *without: str, **settings: str) -> ClusterEndpoint:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    kept = {key: value for key, value in one.settings.items() if key not in without}
    return replace(one, settings={**kept, **named})


def as_user(lab: Lab, user: str) -> ClusterEndpoint:
    found = lab.clusters["dc1"]
    settings = {key: str(value) for key, value in found.client_of(user).items() if key != "bootstrap.servers"}
    return ClusterEndpoint("dc1", found.bootstrap, settings)


def allow(lab: Lab, user: str, topic: str, *operations: AclOperation) -> None:
    bindings = [
        AclBinding(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for operation in operations
    ]
    admin = AdminClient(lab.clusters["dc1"].client)
    for done in admin.create_acls(bindings).values():
        done.result(60)


def test_scram_logs_in_and_the_acls_are_read(lab_sasl: Lab, fresh: Fresh) -> None:
    name = fresh("orders")
    allow(lab_sasl, "app", name, AclOperation.READ)
    rule = AclRule("dc1", "TOPIC", name, "LITERAL", "User:app", "*", "READ", "ALLOW")

    def known() -> bool:  # a broker learns of a change a moment after the answer
        return rule in (
            cluster(observe(endpoint(lab_sasl, "dc1"), ClusterDetailsRequest(acls=True))).acls or ()
        )

    wait_for(known)


PRINCIPALS = ClusterDetailsRequest(quotas=True, scram_users=True)


def test_client_quotas_and_scram_users_are_read(lab_sasl: Lab, fresh: Fresh) -> None:
    user = fresh("loader")
    quota = QuotaEntity(user, "<default>").name, {"producer_byte_rate": 1048576}
    run_tool(
        lab_sasl,
        "dc1",
        "kafka.admin.ConfigCommand",
        *("--command-config", "{client}", "--alter", "--add-config", "producer_byte_rate=1048576"),
        *("--entity-type", "users", "--entity-name", user, "--entity-type", "clients", "--entity-default"),
    )

    def known() -> bool:
        found = cluster(observe(endpoint(lab_sasl, "dc1"), PRINCIPALS))
        return quota in found.quotas.items() and found.scram_users.get("app") == ("SCRAM-SHA-512",)

    wait_for(known)
    refused = cluster(observe(as_user(lab_sasl, "stranger"), PRINCIPALS))
    assert "not authorized to describe the client quotas of dc1" in refused.unreadable["quotas"]
    assert "not authorized to describe the SCRAM users of dc1" in refused.unreadable["scram"]


@pytest.mark.parametrize(
    ("settings", "why", "hint"),
    [
        ({"sasl_password": "wrong"}, "refused the credentials of 'admin' (SCRAM-SHA-512", "sasl.password"),
        ({"sasl_mechanism": "PLAIN"}, "does not take PLAIN: it offers SCRAM-SHA-512", "sasl.mechanism"),
        (
            {"security_protocol": "PLAINTEXT"},
            "wants a SASL login (it offers SCRAM-SHA-512)",
            "SASL_PLAINTEXT",
        ),
        ({"security_protocol": "SASL_SSL"}, "does not speak TLS", "SASL_PLAINTEXT"),
        ({"sasl_mechanism": "GSSAPI"}, "does not take GSSAPI: it offers SCRAM-SHA-512", "sasl.mechanism"),
    ],
    ids=["password", "mechanism", "no-login", "tls", "kerberos"],
)
def test_a_wrong_login_is_told_apart(lab_sasl: Lab, settings: Mapping[str, str], why: str, hint: str) -> None:
    found = unreachable(changed(endpoint(lab_sasl, "dc1"), **settings))
    assert why in found.why
    assert hint in found.hint
    assert "wrong" not in found.why  # the password itself is never repeated


def test_a_login_where_none_is_asked_for(lab: Lab) -> None:
    one = changed(
        endpoint(lab, "dc1"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="u",
        sasl_password="p",
    )
    found = unreachable(one)
    assert "asks for no SASL login" in found.why
    assert "PLAINTEXT" in found.hint


def test_tls_with_a_client_certificate(lab_tls: Lab) -> None:
    assert cluster(observe(endpoint(lab_tls, "dc1"))).id == lab_tls.clusters["dc1"].cluster_id


def test_certificates_may_be_given_as_text(lab_tls: Lab) -> None:
    from pathlib import Path

    one = endpoint(lab_tls, "dc1")
    texts = {
        f"{name}.pem": Path(one.settings[f"{name}.location"]).read_text()
        for name in ("ssl.ca", "ssl.certificate", "ssl.key")
    }
    given = replace(one, settings={"security.protocol": "ssl", **texts})
    assert cluster(observe(given)).id == lab_tls.clusters["dc1"].cluster_id


def test_a_certificate_that_is_not_trusted(lab_tls: Lab) -> None:
    found = unreachable(changed(endpoint(lab_tls, "dc1"), "ssl.ca.location"))
    assert "is not trusted" in found.why
    assert "ssl.ca.location" in found.hint


def test_a_broker_that_wants_a_client_certificate(lab_tls: Lab) -> None:
    without = changed(endpoint(lab_tls, "dc1"), "ssl.certificate.location", "ssl.key.location")
    found = unreachable(without)
    assert "wants a client certificate" in found.why
    assert "ssl.certificate.location" in found.hint


def test_plaintext_against_a_tls_port(lab_tls: Lab) -> None:
    found = unreachable(ClusterEndpoint("dc1", lab_tls.clusters["dc1"].bootstrap))
    assert "speaks TLS, and the client plaintext" in found.why
    assert "SSL" in found.hint


def test_tls_against_a_plaintext_port(lab: Lab) -> None:
    found = unreachable(changed(endpoint(lab, "dc1"), security_protocol="SSL"))
    assert "does not speak TLS: it answers in plaintext" in found.why
    assert "PLAINTEXT" in found.hint


def test_a_file_of_tls_that_is_not_there(lab_tls: Lab) -> None:
    found = unreachable(changed(endpoint(lab_tls, "dc1"), ssl_ca_location="/no/such/ca.pem"))
    assert "TLS settings can't be used" in found.why
    assert "ssl.ca.location /no/such/ca.pem" in found.why
    assert "ssl.*" in found.hint


def test_topics_that_an_acl_hides_are_hidden_and_never_absent(lab_sasl: Lab, fresh: Fresh) -> None:
    seen, secret, absent, blind = fresh("seen"), fresh("secret"), fresh("absent"), fresh("blind")
    for name in (seen, secret, blind):
        create_topic(lab_sasl.clusters["dc1"].client, name)
    allow(lab_sasl, "app", seen, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    allow(lab_sasl, "app", blind, AclOperation.DESCRIBE)
    wanted = {name: TopicConfigsRequest(explicit=True) for name in (seen, secret, blind)}
    found: list[ObservedCluster] = []

    def known() -> bool:  # as above
        as_app = as_user(lab_sasl, "app")
        found[:] = [
            cluster(observe(as_app, ClusterDetailsRequest(wanted, acls=True), frozenset({secret, absent})))
        ]
        return seen in found[0].topics and f"topic.{blind}" in found[0].unreadable

    wait_for(known, about=lambda: found)
    (told,) = found
    assert seen not in told.hidden
    assert secret not in told.topics
    # Kafka says the same of a topic that is hidden and of one that is not there: it is not for us to know.
    assert {secret, absent, blind} <= told.hidden
    assert told.unreadable[f"topic.{blind}"] == "not authorized to describe its configs"
    why = "not authorized to describe the ACLs of dc1 (cluster authorization failed)"
    assert told.unreadable["acls"] == f"{why}; it needs DESCRIBE on the cluster"
    assert "defaults" in told.unreadable


def test_without_any_right_the_registry_is_not_taken_for_empty(lab_sasl: Lab) -> None:
    observed = observe(as_user(lab_sasl, "stranger"))
    assert "registry" in cluster(observed).unreadable
    assert [one.code for one in observed.diagnostics] == ["registry-hidden"]
