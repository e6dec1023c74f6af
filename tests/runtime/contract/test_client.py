"""A cluster's `client:` settings become what both Kafka clients want."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.contract.client.keys import ALLOWED
from runtime.contract.client.settings import (
    ClientSettingsError,
    Password,
    Sasl,
    SecurityProtocol,
    Tls,
    TokenCommand,
    TokenEndpoint,
    UnsecuredToken,
    confluent_config,
    parse_bootstrap,
    wire_settings,
)

BOOTSTRAP = "one:9092"
SASL = {"security.protocol": "SASL_PLAINTEXT"}


def test_what_is_not_said_is_librdkafkas_default() -> None:
    settings = wire_settings(BOOTSTRAP, {})

    assert settings.security is SecurityProtocol.PLAINTEXT
    assert (settings.tls, settings.sasl, settings.notes) == (None, None, ())
    assert (settings.request_timeout_s, settings.reconnect_backoff_s) == (60.0, 0.1)


def test_times_and_sizes_are_read_by_librdkafkas_names() -> None:
    settings = wire_settings(
        BOOTSTRAP,
        {
            "client.id": "me",
            "socket.timeout.ms": "5000",
            "reconnect.backoff.ms": "50",
            "reconnect.backoff.max.ms": "500",
            "receive.message.max.bytes": "1000",
            "socket.keepalive.enable": "false",
        },
    )

    assert (settings.client_id, settings.keepalive) == ("me", False)
    assert (settings.request_timeout_s, settings.max_response_bytes) == (5.0, 1000)
    assert (settings.reconnect_backoff_s, settings.reconnect_backoff_max_s) == (0.05, 0.5)


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        (
            {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": "p"},
            Password("SCRAM-SHA-512", "u", "p"),
        ),
        (
            {"sasl.mechanisms": "plain", "sasl.username": "u", "sasl.password": "p"},
            Password("PLAIN", "u", "p"),
        ),
        (
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": "https://id/token",
                "sasl.oauthbearer.client.id": "me",
                "sasl.oauthbearer.client.secret": "hush",
                "sasl.oauthbearer.scope": "kafka",
            },
            TokenEndpoint("https://id/token", "me", "hush", "kafka"),
        ),
        (
            {
                "sasl.mechanism": "OAUTHBEARER",
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
                "sasl.oauthbearer.config": "principal=app lifeSeconds=60",
            },
            UnsecuredToken("app", 60),
        ),
    ],
    ids=["scram", "plain", "token endpoint", "unsecured token"],
)
def test_ways_to_say_who_we_are(client: dict[str, str], expected: Sasl) -> None:
    settings = wire_settings(BOOTSTRAP, SASL | client)

    assert settings.sasl == expected
    assert settings.notes == ()


def test_a_token_command_is_given_beside_the_settings() -> None:
    client = SASL | {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.extensions": "a=1,b=2"}
    settings = wire_settings(BOOTSTRAP, client, token_command="get-token dc1")

    assert settings.sasl == TokenCommand("get-token dc1", (("a", "1"), ("b", "2")))


@pytest.mark.parametrize(
    ("client", "why"),
    [
        (
            SASL
            | {
                "sasl.mechanism": "OAUTHBEARER",
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
                "sasl.oauthbearer.config": "principal=app lifeSeconds=soon",
            },
            "sasl.oauthbearer.config: lifeSeconds is not a whole number",
        ),
        ({"security.protocol": "TLS"}, "'TLS' is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        (SASL, "GSSAPI is not spoken by the data path; PLAIN, SCRAM"),
        (SASL | {"sasl.mechanism": "PLAIN"}, "sasl.username: is missing; sasl.mechanism PLAIN needs it"),
        (
            SASL | {"sasl.mechanism": "OAUTHBEARER"},
            "OAUTHBEARER needs the environment variable REPL_OAUTHBEARER_TOKEN_COMMAND",
        ),
        ({"socket.timeout.ms": "soon"}, "'soon' is not a whole number"),
        ({"socket.keepalive.enable": "maybe"}, "'maybe' is neither true nor false"),
        (
            {"security.protocol": "SSL", "ssl.keystore.location": "/k.p12"},
            "keys are read as PEM .use ssl.certificate.location",
        ),
    ],
)
def test_what_cannot_work_says_the_key_and_the_way_out(client: dict[str, str], why: str) -> None:
    with pytest.raises(ClientSettingsError, match=why):
        wire_settings(BOOTSTRAP, client)


def test_tls_is_read_only_where_it_is_spoken() -> None:
    client = {"ssl.ca.location": "/ca.pem", "ssl.endpoint.identification.algorithm": "none"}

    assert wire_settings(BOOTSTRAP, client).tls is None
    assert wire_settings(BOOTSTRAP, client | {"security.protocol": "ssl"}).tls == Tls(
        ca_location="/ca.pem", check_hostname=False
    )


def test_settings_of_the_control_plane_go_to_librdkafka_and_are_noted() -> None:
    client = {"socket.max.fails": "5", "client.rack": "r1"}

    assert wire_settings(BOOTSTRAP, client).notes == (
        "client.rack is not used by the data path, only by the control plane",
        "socket.max.fails is not used by the data path, only by the control plane",
    )
    assert confluent_config(BOOTSTRAP, client) == {"bootstrap.servers": BOOTSTRAP, **client}


def test_all_clients_get_the_same_addresses() -> None:
    given = " SASL_SSL://one:1 ,[::1]:2,"

    assert wire_settings(given, {}).bootstrap == (("one", 1), ("::1", 2))
    assert confluent_config(given, {})["bootstrap.servers"] == "one:1,[::1]:2"


@pytest.mark.parametrize("make", [wire_settings, confluent_config])
@pytest.mark.parametrize("name", ["plugin.library.paths", "bootstrap.servers", "no.such.setting"])
def test_a_setting_that_is_not_allowed_makes_no_client(make: Any, name: str) -> None:
    assert name not in ALLOWED
    with pytest.raises(ClientSettingsError, match=name):
        make(BOOTSTRAP, {name: "x"})


def test_no_secret_is_shown() -> None:
    settings = wire_settings(
        BOOTSTRAP,
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "u",
            "sasl.password": "hush",
            "ssl.key.pem": "hush",
            "ssl.key.password": "hush",
        },
    )

    assert "hush" not in repr(settings)


@pytest.mark.parametrize(
    ("text", "brokers"),
    [
        ("one:9092", (("one", 9092),)),
        (" one:1 , two:2,", (("one", 1), ("two", 2))),
        ("[::1]:9092", (("::1", 9092),)),
        ("SASL_SSL://one:9092", (("one", 9092),)),
    ],
)
def test_bootstrap_is_a_list_of_host_and_port(text: str, brokers: object) -> None:
    assert parse_bootstrap(text) == brokers


@pytest.mark.parametrize(
    "text", ["", "one", "one:", ":9092", "one:http", "one:0", "one:70000", "a/b.c:1", "a@b:1", "a b:1"]
)
def test_a_bootstrap_that_names_no_broker_is_refused(text: str) -> None:
    with pytest.raises(ClientSettingsError, match="bootstrap"):
        parse_bootstrap(text)
