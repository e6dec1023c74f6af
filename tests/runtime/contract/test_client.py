"""A cluster's `client:` settings: which may stand there, where secrets come from, and what clients get."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from runtime.contract.client.keys import (
    ALLOWED,
    CREDENTIALS,
    LOCATIONS,
    SECRETS,
    TOKEN_COMMAND_KEY,
    refusal,
    token_command_variables,
)
from runtime.contract.client.secrets import ClientSecrets, redacted, registry_address
from runtime.contract.client.settings import (
    ClientSettingsError,
    Kerberos,
    MskIam,
    Password,
    Sasl,
    SecurityProtocol,
    Store,
    Tls,
    TokenCommand,
    TokenEndpoint,
    UnsecuredToken,
    confluent_config,
    parse_bootstrap,
    wire_settings,
)
from runtime.kafka.errors import ErrorCode, Refusal

BOOTSTRAP = "one.example.org:9092,two.example.org:9093"
CANARY = "canary-4711"
SASL = {"security.protocol": "SASL_PLAINTEXT"}
OAUTH = SASL | {"sasl.mechanism": "OAUTHBEARER"}
IAM = SASL | {"sasl.mechanism": "AWS_MSK_IAM"}
TLS = {"security.protocol": "SSL"}
LOGIN = {"sasl.username": "u", "sasl.password": "p"}
UNSECURED = OAUTH | {"enable.sasl.oauthbearer.unsecure.jwt": "true"}
TOKEN = "REPL_OAUTHBEARER_TOKEN_COMMAND"

# Which settings a topology may give


@pytest.mark.parametrize(
    ("names", "why", "hint"),
    [
        (
            "plugin.library.paths ssl.engine.location ssl.engine.id ssl.providers",
            "load a library",
            "leave it",
        ),
        ("sasl.kerberos.kinit.cmd", "run a command", "sasl.kerberos.keytab"),
        ("sasl.kerberos.min.time.before.relogin", "renews its tickets itself", "sasl.kerberos.principal"),
        (TOKEN_COMMAND_KEY, "run a command", f"{TOKEN}_<CLUSTER>"),
        ("statistics.interval.ms log_level log_cb logger debug", "debugging", "leave it out"),
        ("stats_cb oauth_cb", "callback", "leave it out"),
        ("bootstrap.servers metadata.broker.list", "not read", "beside client"),
        ("group.id", "not read", "its own groups"),
        ("transactional.id", "not read", "its own transactional ids"),
        ("offset.store.path", "not among", ""),
        ("sasl.pasword SASL.PASSWORD", "not among", 'did you mean "sasl.password"?'),
        ("ssl_engine_callback_data", "not among", "operations.md"),
    ],
)
def test_a_setting_that_is_not_listed_is_refused(names: str, why: str, hint: str) -> None:
    for name in names.split():
        found = refusal(name)
        assert found is not None
        assert why in found.why
        assert hint in found.hint


def test_what_is_listed_is_taken_and_documented() -> None:
    assert [name for name in sorted(ALLOWED) if refusal(name) is not None] == []
    assert refusal("") is not None
    assert not CREDENTIALS & LOCATIONS
    page = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
    lists = r"^- (?:Credentials|All others)[^:]*:((?: .*\n)(?:  .*\n)*)"
    credentials, others = re.findall(lists, page, re.MULTILINE)
    named = [set(re.findall(r"`([a-z.]+)`", text)) for text in (credentials.partition(":")[2], others)]
    assert named == [CREDENTIALS, ALLOWED - CREDENTIALS]


# What both Kafka clients get


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        (
            {},
            {
                "security": SecurityProtocol.PLAINTEXT,
                "tls": None,
                "sasl": None,
                "notes": (),
                "request_timeout_s": 60.0,
                "reconnect_backoff_s": 0.1,
            },
        ),
        (
            {"client.id": "me", "socket.timeout.ms": "5000", "socket.keepalive.enable": "false"},
            {"client_id": "me", "request_timeout_s": 5.0, "keepalive": False},
        ),
        (
            {"reconnect.backoff.ms": "50", "reconnect.backoff.max.ms": "500"},
            {"reconnect_backoff_s": 0.05, "reconnect_backoff_max_s": 0.5},
        ),
        ({"receive.message.max.bytes": "1000"}, {"max_response_bytes": 1000}),
        ({"ssl.ca.location": "/ca.pem"}, {"tls": None}),
        (
            {
                "ssl.ca.location": "/ca.pem",
                "ssl.endpoint.identification.algorithm": "none",
                "security.protocol": "ssl",
            },
            {"tls": Tls(ca_location="/ca.pem", check_hostname=False)},
        ),
        (
            {
                "security.protocol": "ssl",
                "ssl.truststore.location": "/ca.p12",
                "ssl.truststore.password": "changeit",
                "ssl.keystore.location": "/me.pem",
                "ssl.keystore.type": "pem",
            },
            {
                "tls": Tls(
                    truststore=Store("/ca.p12", "changeit"),
                    certificate_location="/me.pem",
                    key_location="/me.pem",
                )
            },
        ),
        (
            {"socket.max.fails": "5", "client.rack": "r1"},
            {
                "notes": (
                    "client.rack is not used by the data path, only by the control plane",
                    "socket.max.fails is not used by the data path, only by the control plane",
                )
            },
        ),
    ],
    ids=["defaults", "names", "backoff", "sizes", "no TLS spoken", "TLS", "stores", "of the control plane"],
)
def test_settings_are_read_by_librdkafkas_names(client: dict[str, str], expected: dict[str, object]) -> None:
    settings = wire_settings(BOOTSTRAP, client)
    assert {name: getattr(settings, name) for name in expected} == expected
    librdkafkas = {key: text for key, text in client.items() if "store." not in key}
    assert confluent_config(BOOTSTRAP, client) == {"bootstrap.servers": BOOTSTRAP, **librdkafkas}


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        (SASL | LOGIN | {"sasl.mechanism": "SCRAM-SHA-512"}, Password("SCRAM-SHA-512", "u", "p")),
        (SASL | LOGIN | {"sasl.mechanisms": "plain"}, Password("PLAIN", "u", "p")),
        (
            OAUTH
            | {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": "https://id/token",
                "sasl.oauthbearer.client.id": "me",
                "sasl.oauthbearer.client.secret": "hush",
                "sasl.oauthbearer.scope": "kafka",
            },
            TokenEndpoint("https://id/token", "me", "hush", "kafka"),
        ),
        (
            UNSECURED | {"sasl.oauthbearer.config": "principal=app lifeSeconds=60"},
            UnsecuredToken("app", 60),
        ),
        (
            OAUTH | {"sasl.oauthbearer.extensions": "a=1,b=2"},
            TokenCommand("get-token dc1", (("a", "1"), ("b", "2"))),
        ),
        (SASL, Kerberos()),
        (
            SASL
            | {
                "sasl.mechanism": "GSSAPI",
                "sasl.kerberos.service.name": "brokers",
                "sasl.kerberos.principal": "me@EXAMPLE",
                "sasl.kerberos.keytab": "/me.keytab",
            },
            Kerberos("brokers", "me@EXAMPLE", "/me.keytab"),
        ),
        (
            IAM | {"sasl.aws.region": "eu-west-1", "sasl.aws.role.arn": "arn:aws:iam::1:role/copy"},
            MskIam("eu-west-1", "arn:aws:iam::1:role/copy"),
        ),
    ],
    ids=[
        *("scram", "plain", "token endpoint", "unsecured token", "token command"),
        *("tickets of kinit", "keytab", "role of IAM"),
    ],
)
def test_ways_to_authenticate(client: dict[str, str], expected: Sasl) -> None:
    command = expected.command if isinstance(expected, TokenCommand) else None
    settings = wire_settings(BOOTSTRAP, client, token_command=command)
    assert settings.sasl == expected
    assert settings.notes == ()


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("b-1.orders.abc123.c2.kafka.eu-west-1.amazonaws.com", "eu-west-1"),
        ("boot-abc123.c1.kafka-serverless.us-gov-east-1.amazonaws.com", "us-gov-east-1"),
        ("b-1.orders.abc123.c2.kafka.cn-north-1.amazonaws.com.cn", "cn-north-1"),
    ],
)
def test_the_region_of_iam_is_in_the_addresses_of_msk(host: str, region: str) -> None:
    settings = wire_settings(f"proxy:9098,{host}:9098", IAM)
    assert settings.sasl == MskIam(region)
    assert confluent_config(f"{host}:9098", IAM)["sasl.mechanism"] == "OAUTHBEARER"


@pytest.mark.parametrize(
    ("client", "why"),
    [
        (
            UNSECURED | {"sasl.oauthbearer.config": "principal=app lifeSeconds=soon"},
            "sasl.oauthbearer.config: lifeSeconds is not a whole number",
        ),
        ({"security.protocol": "TLS"}, "'TLS' is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        (SASL | {"sasl.mechanism": "NTLM"}, "NTLM is not supported; PLAIN, SCRAM"),
        (SASL | LOGIN, "sasl.mechanism: is missing; with sasl.username it is PLAIN"),
        (SASL | {"sasl.kerberos.keytab": "/k"}, "sasl.kerberos.principal: is missing"),
        (IAM, "sasl.aws.region: is missing"),
        (IAM | {"sasl.aws.region": "eu-west-1.evil.example/"}, "sasl.aws.region: '.*' is no region"),
        (SASL | {"sasl.mechanism": "PLAIN"}, "sasl.username: is missing; sasl.mechanism PLAIN needs it"),
        (OAUTH, f"OAUTHBEARER needs the environment variable {TOKEN}"),
        ({"socket.timeout.ms": "soon"}, "'soon' is not a whole number"),
        ({"socket.keepalive.enable": "maybe"}, "'maybe' is neither true nor false"),
        (
            TLS | {"ssl.keystore.location": "/my k.jks", "ssl.keystore.type": "JKS"},
            "only Java reads .convert it: keytool -importkeystore -srckeystore '/my k.jks' -destkeystore",
        ),
        (
            TLS | {"ssl.keystore.location": "/k", "ssl.keystore.type": "BKS"},
            "'BKS' is none of PKCS12, PEM, JKS",
        ),
        (TLS | {"ssl.truststore.password": "p"}, "ssl.truststore.location: is missing"),
        (
            TLS | {"ssl.keystore.location": "/k.p12", "ssl.certificate.location": "/c.pem"},
            "ssl.keystore.location: stands beside ssl.certificate",
        ),
        (
            TLS | {"ssl.keystore.location": "/k.p12", "ssl.key.pem": "x"},
            "ssl.keystore.location: stands beside ssl.certificate.. or ssl.key",
        ),
        (
            TLS | {"ssl.truststore.location": "/t.p12", "ssl.ca.pem": "x"},
            "ssl.truststore.location: stands beside ssl.ca",
        ),
    ],
)
def test_settings_that_cannot_work_name_the_key_and_a_hint(client: dict[str, str], why: str) -> None:
    with pytest.raises(ClientSettingsError, match=why):
        wire_settings(BOOTSTRAP, client)


@pytest.mark.parametrize("other", ["ssl.key.pem", "ssl.keystore.password"])  # a key stands in one place
def test_no_secret_is_shown(other: str) -> None:
    secret = dict.fromkeys(SECRETS - {"sasl.oauthbearer.client.secret", other}, "hush")
    secret["ssl.truststore.location"] = "/t"
    if "ssl.keystore.password" in secret:
        secret["ssl.keystore.location"] = "/k"
    client = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u", **secret}
    assert "hush" not in repr(wire_settings(BOOTSTRAP, client))


@pytest.mark.parametrize(
    ("text", "brokers"),
    [
        ("one:9092", (("one", 9092),)),
        (" one:1 , two:2,", (("one", 1), ("two", 2))),
        ("[::1]:9092", (("::1", 9092),)),
        (" SASL_SSL://one:1 ,[::1]:2,", (("one", 1), ("::1", 2))),
    ],
)
def test_bootstrap_is_a_list_of_host_and_port(text: str, brokers: tuple[tuple[str, int], ...]) -> None:
    assert parse_bootstrap(text) == brokers == wire_settings(text, {}).bootstrap
    plain = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in brokers)
    assert confluent_config(text, {})["bootstrap.servers"] == plain


@pytest.mark.parametrize(
    "text", ["", "one", "one:", ":9092", "one:http", "one:0", "one:70000", "a/b.c:1", "a@b:1", "a b:1"]
)
def test_a_bootstrap_that_names_no_broker_is_refused(text: str) -> None:
    with pytest.raises(ClientSettingsError, match="bootstrap"):
        parse_bootstrap(text)


# Where secrets come from, as far as the operator allows it


def resolve(
    client: Mapping[str, Any], folders: tuple[Path, ...] | None = None, **environ: str
) -> dict[str, str]:
    return ClientSecrets(environ, folders).resolve(BOOTSTRAP, client)


def refused(client: Mapping[str, Any], folders: tuple[Path, ...] | None = None, **environ: str) -> str:
    with pytest.raises(ClientSettingsError) as raised:
        resolve(client, folders, **environ)
    return str(raised.value)


def password_file(file: Path | str) -> dict[str, Any]:
    return {"sasl.password": {"file": str(file)}}


@pytest.mark.parametrize(
    ("value", "text"),
    [("plain", "plain"), (5, "5"), (True, "true"), (False, "false"), ({"env": "PASSWORD"}, CANARY)],
)
def test_values_and_references_become_text(value: object, text: str) -> None:
    assert resolve({"sasl.password": value}, PASSWORD=CANARY) == {"sasl.password": text}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"env": "OTHER"}, "client setting sasl.password: the environment variable OTHER is not set"),
        ({"env": "EMPTY"}, "the environment variable EMPTY is empty"),
        ({"file": "/no/such"}, "the file /no/such can't be read: No such file"),
        *(
            (value, "a reference is")
            for value in ({"env": "PASSWORD", "file": "/secret"}, {"env": 5}, {}, None)
        ),
    ],
)
def test_a_reference_that_leads_nowhere_names_the_key(value: object, why: str) -> None:
    assert why in refused({"sasl.password": value}, PASSWORD="p", EMPTY="")


@pytest.mark.parametrize("key", sorted(ALLOWED - CREDENTIALS))
def test_a_setting_that_carries_no_credential_takes_no_reference(key: str) -> None:
    error = refused({key: {"env": "SECRET"}}, SECRET=CANARY)
    assert f"{key}: takes no reference" in error
    assert CANARY not in error


@pytest.mark.parametrize("file", ["/proc/self/environ", "/proc/self/root/proc/self/environ", "/dev/stdin"])
def test_files_that_the_system_makes_up_are_never_read(file: str, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    for name in (file, str(link)):
        assert "in no folder" in refused(password_file(name), None, REPL_ALLOW_FILES="/")
        assert "in no folder" in refused({"ssl.ca.location": name}, None, REPL_ALLOW_FILES="/")


def test_only_regular_text_files_of_a_bounded_size_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * (2**20 + 1))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "secret").write_bytes(b" hush\r\n")
    assert resolve(password_file(tmp_path / "secret")) == {"sasl.password": " hush"}
    errors = {
        "pipe": "not a regular file",
        ".": "Is a directory",
        "large": "larger than 1 MiB",
        "binary": "not text in UTF-8",
    }
    for name, why in errors.items():
        assert why in refused(password_file(tmp_path / name))
    assert "neither a file nor a folder" in refused({"ssl.ca.location": str(tmp_path / "pipe")})


def test_files_are_read_in_the_folder_of_the_topology_or_in_those_of_the_operator(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    for folder in (own, other):
        folder.mkdir()
        (folder / "secret").write_text(CANARY)
    (own / "link").symlink_to(other / "secret")
    inside = password_file(own / "secret")

    assert resolve(inside, (own,)) == {"sasl.password": CANARY}
    for outside in (other / "secret", own / "link", own / ".." / "other" / "secret"):
        assert "REPL_ALLOW_FILES" in refused(password_file(outside), (own,))
        assert resolve(password_file(outside), (own,), REPL_ALLOW_FILES=f"/nowhere, {other}")
    assert "REPL_ALLOW_FILES" in refused(inside, (own,), REPL_ALLOW_FILES=str(other))
    assert "REPL_ALLOW_FILES" in refused(inside, (own,), REPL_ALLOW_FILES="")

    read_by_the_client = {"ssl.ca.location": str(tmp_path / "ca.pem")}
    assert resolve(read_by_the_client, ()) == read_by_the_client
    assert resolve(read_by_the_client, REPL_ALLOW_FILES=str(tmp_path)) == read_by_the_client
    assert "REPL_ALLOW_FILES" in refused(read_by_the_client, REPL_ALLOW_FILES=f"{tmp_path}/below")


VARIABLE = "DC1_PASSWORD"
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"


@pytest.mark.parametrize(
    ("allowed", "taken"),
    [(text, True) for text in ("DC1_PASSWORD", "DC1_*", "A, DC1_PASSWORD ,B", "*")]
    + [(text, False) for text in ("DC1_PASSWOR", "DC2_*", "", "dc1_password", "D*D")],
)
def test_the_operator_says_which_variables(allowed: str, taken: bool) -> None:
    client, environ = {"sasl.password": {"env": VARIABLE}}, {VARIABLE: CANARY, "REPL_ALLOW_ENV": allowed}
    if taken:
        assert resolve(client, None, **environ) == {"sasl.password": CANARY}
    else:
        assert "REPL_ALLOW_ENV" in refused(client, None, **environ)


def test_the_key_that_signs_plans_is_no_setting_of_a_cluster() -> None:
    client = {"sasl.password": {"env": "REPL_PLAN_KEY"}}
    assert "REPL_PLAN_KEY" in refused(client, REPL_PLAN_KEY=CANARY)
    assert "REPL_PLAN_KEY" in refused(client, REPL_PLAN_KEY=CANARY, REPL_ALLOW_ENV="*")


@pytest.mark.parametrize(
    ("allowed", "bootstrap", "taken"),
    [
        ("one.example.org", "one.example.org:9092", True),
        ("one.example.org:9092", "one.example.org:9092", True),
        ("ONE.example.org", "one.Example.org.:9092", True),
        ("*.example.org:9092", "one.example.org:9092", True),
        ("*.example.org:*", "one.example.org:9092", True),
        ("10.0.*", "10.0.3.4:9092", True),
        ("[::1]:9092", "[::1]:9092", True),
        ("::1", "[::1]:9092", True),
        ("a,one.example.org", "one.example.org:9092,a:1", True),
        ("one.example.org:9093", "one.example.org:9092", False),
        ("*.example.org", "example.org.evil.net:9092", False),
        ("*.example.org", "evilexample.org:9092", False),
        ("one.example.org", "one.example.org:9092,evil.net:9092", False),
        ("one.example.org", "oneXexample.org:9092", False),
        ("", "one.example.org:9092", False),
    ],
)
def test_the_operator_says_which_addresses(allowed: str, bootstrap: str, taken: bool) -> None:
    secrets = ClientSecrets({"REPL_ALLOW_BOOTSTRAP": allowed, "PASSWORD": CANARY})
    client = {"sasl.password": {"env": "PASSWORD"}}
    if taken:
        assert secrets.resolve(bootstrap, client) == {"sasl.password": CANARY}
    else:
        with pytest.raises(ClientSettingsError, match="REPL_ALLOW_BOOTSTRAP"):
            secrets.resolve(bootstrap, client)


@pytest.mark.parametrize(
    ("url", "taken"),
    [
        ("https://login.example.org/token", True),
        ("https://login.example.org:443/token?a=b", True),
        ("https://login.example.org:8443/token", False),
        ("https://evil.net/token", False),
        ("https://login.example.org@evil.net/token", False),
        ("https://evil.net\\@login.example.org/token", False),
        ("https://evil.net#@login.example.org/token", False),
        ("file:///etc/passwd", False),
    ],
)
def test_the_endpoint_for_tokens_is_an_address_too(url: str, taken: bool) -> None:
    secrets = ClientSecrets({"REPL_ALLOW_BOOTSTRAP": "one.example.org,login.example.org:443"})
    if taken:
        secrets.check_addresses("one.example.org:9092", {ENDPOINT: url})
    else:
        with pytest.raises(ClientSettingsError, match=r"token\.endpoint\.url"):
            secrets.check_addresses("one.example.org:9092", {ENDPOINT: url})


def test_resolved_secrets_are_hidden_in_the_texts_of_others() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\n-----END PRIVATE KEY-----"
    client = {"sasl.password": {"env": "P"}, "sasl.username": {"env": "U"}, "ssl.key.pem": {"env": "K"}}
    resolve(client, P="a-long-password", U="zq", K=key)
    assert redacted("wrong: a-long-password!") == "wrong: (sensitive value)!"
    refusal = Refusal(ErrorCode.INVALID_CONFIG, "wrong: a-long-password!")  # brokers may repeat it, too
    assert refusal.text == "wrong: (sensitive value)!"
    assert redacted("user 'zq' is unknown to zqx") == "user '(sensitive value)' is unknown to zqx"
    assert redacted("bad line MIIEvQIBADANBgkqhkiG9w0BAQ") == "bad line (sensitive value)"


@pytest.mark.parametrize(
    ("cluster", "environ", "command"),
    [
        ("dc-1", {}, None),
        ("dc-1", {TOKEN: "all"}, "all"),
        ("dc-1", {TOKEN: "all", f"{TOKEN}_DC_1": "one"}, "one"),
        ("dc-1", {TOKEN: "all", f"{TOKEN}_DC_1": ""}, "all"),
        ("eu-west.1", {f"{TOKEN}_EU_WEST_1": "one"}, "one"),
        ("dc2", {f"{TOKEN}_DC_1": "one"}, None),
    ],
)
def test_the_token_command_is_the_operators(
    cluster: str, environ: dict[str, str], command: str | None
) -> None:
    assert ClientSecrets(environ).token_command(cluster) == command
    assert token_command_variables(cluster)[-1] == TOKEN
    assert TOKEN in refused({TOKEN_COMMAND_KEY: "id"})


@pytest.mark.parametrize("url", ["ftp://registry:21", "registry:8081", "https://", "https://registry:many"])
def test_a_registry_has_a_web_address(url: str) -> None:
    with pytest.raises(ClientSettingsError, match="is no web address"):
        registry_address(url)
    assert registry_address("https://registry") == ("registry", 443)
    assert registry_address("http://[::1]:8081/path") == ("::1", 8081)
