"""Credentials, TLS and rights that are not as they should be: each is told apart, with its way out."""

from collections.abc import Callable

import pytest

from planner.kafka import ClusterEndpoint
from planner.model.observed import (
    ClusterDetailsRequest,
    Observed,
    ObservedCluster,
    Unreachable,
)
from planner.model.topology import AclRule, QuotaEntity
from runtime.lab.lab import Lab
from tests.endpoints import endpoint
from tests.endpoints import observed as observed_at
from tests.fakes.replacing import replace
from tests.fakes.tables import cases
from tests.labs import run_tool
from tests.records import create_topic, wait_for
from tests.rights import Right, grant

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


def test_scram_logs_in_and_the_acls_are_read(lab_sasl: Lab, fresh: Fresh) -> None:
    name = fresh("orders")
    grant(lab_sasl.clusters["dc1"], "app", Right("TOPIC", name, False, ("READ",)))
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


SASL, TLS, PLAIN = "lab_sasl", "lab_tls", "lab"
LOGIN = {"sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": "p"}


@cases(
    "lab_name without settings why hint",
    {
        "a wrong password": (
            *(SASL, (), {"sasl_password": "wrong"}),
            *("refused the credentials of 'admin' (SCRAM-SHA-512", "sasl.password"),
        ),
        "another mechanism": (
            *(SASL, (), {"sasl_mechanism": "PLAIN"}),
            *("does not take PLAIN: it offers SCRAM-SHA-512", "sasl.mechanism"),
        ),
        "Kerberos": (
            *(SASL, (), {"sasl_mechanism": "GSSAPI"}),
            *("does not take GSSAPI: it offers SCRAM-SHA-512", "sasl.mechanism"),
        ),
        "no login": (
            *(SASL, (), {"security_protocol": "PLAINTEXT"}),
            *("wants a SASL login (it offers SCRAM-SHA-512)", "SASL_PLAINTEXT"),
        ),
        "TLS to a port with SASL alone": (
            *(SASL, (), {"security_protocol": "SASL_SSL"}),
            *("does not speak TLS", "SASL_PLAINTEXT"),
        ),
        "a login where none is asked for": (
            *(PLAIN, (), {"security_protocol": "SASL_PLAINTEXT", **LOGIN}),
            *("asks for no SASL login", "PLAINTEXT"),
        ),
        "TLS to a plaintext port": (
            *(PLAIN, (), {"security_protocol": "SSL"}),
            *("does not speak TLS: it answers in plaintext", "PLAINTEXT"),
        ),
        "plaintext to a TLS port": (
            *(TLS, (), {"security_protocol": "PLAINTEXT"}),
            *("speaks TLS, and the client plaintext", "SSL"),
        ),
        "an authority that is not trusted": (
            *(TLS, ("ssl.ca.location",), {}),
            *("is not trusted", "ssl.ca.location"),
        ),
        "no client certificate": (
            *(TLS, ("ssl.certificate.location", "ssl.key.location"), {}),
            *("wants a client certificate", "ssl.certificate.location"),
        ),
        "a file that is not there": (
            *(TLS, (), {"ssl_ca_location": "/no/such/ca.pem"}),
            *("TLS settings can't be used: ssl.ca.location /no/such/ca.pem", "ssl.*"),
        ),
    },
)
def test_a_connection_that_is_refused_says_why(request, lab_name, without, settings, why, hint) -> None:
    lab: Lab = request.getfixturevalue(lab_name)
    found = unreachable(changed(endpoint(lab, "dc1"), *without, **settings))
    assert not found.silent
    assert why in found.why
    assert hint in found.hint
    assert "wrong" not in found.why  # the password itself is never repeated


def test_topics_that_an_acl_hides_are_hidden_and_never_absent(lab_sasl: Lab, fresh: Fresh) -> None:
    seen, secret, absent, blind = fresh("seen"), fresh("secret"), fresh("absent"), fresh("blind")
    for name in (seen, secret, blind):
        create_topic(lab_sasl.clusters["dc1"].client, name)
    grant(
        lab_sasl.clusters["dc1"],
        "app",
        Right("TOPIC", seen, False, ("DESCRIBE", "DESCRIBE_CONFIGS")),
        Right("TOPIC", blind, False, ("DESCRIBE",)),
    )
    wanted = dict.fromkeys((seen, secret, blind), frozenset[str]())
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
