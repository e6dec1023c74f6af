"""References become text, as far as the operator allows it; nothing is read before all of it is checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from runtime.contract.client.secrets import ClientSecrets, redacted
from runtime.contract.client.settings import ClientSettingsError

BOOTSTRAP = "one.example.org:9092,two.example.org:9093"
CANARY = "canary-4711"


def resolve(
    client: Mapping[str, Any], folders: tuple[Path, ...] | None = None, **environ: str
) -> dict[str, str]:
    return ClientSecrets(environ, folders).resolve(BOOTSTRAP, client)


def refused(client: Mapping[str, Any], folders: tuple[Path, ...] | None = None, **environ: str) -> str:
    with pytest.raises(ClientSettingsError) as raised:
        resolve(client, folders, **environ)
    return str(raised.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [("plain", "plain"), (5, "5"), (True, "true"), (False, "false"), ({"env": "PASSWORD"}, CANARY)],
)
def test_values_and_references_become_text(value: object, text: str) -> None:
    assert resolve({"sasl.password": value}, PASSWORD=CANARY) == {"sasl.password": text}


def test_a_file_is_read_without_its_last_newline(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b" hush\r\n")

    assert resolve({"sasl.password": {"file": str(tmp_path / "secret")}}) == {"sasl.password": " hush"}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"env": "OTHER"}, "client setting sasl.password: the environment variable OTHER is not set"),
        ({"env": "EMPTY"}, "the environment variable EMPTY is empty"),
        ({"file": "/no/such"}, "the file /no/such can't be read: No such file"),
        ({"env": "PASSWORD", "file": "/secret"}, "a reference is"),
        ({"env": 5}, "a reference is"),
        ({}, "a reference is"),
        (None, "a reference is"),
    ],
)
def test_a_reference_that_leads_nowhere_names_the_key(value: object, why: str) -> None:
    assert why in refused({"sasl.password": value}, PASSWORD="p", EMPTY="")


@pytest.mark.parametrize("key", ["security.protocol", "ssl.ca.location", "client.rack", "sasl.mechanism"])
def test_a_setting_that_carries_no_credential_takes_no_reference(key: str) -> None:
    said = refused({key: {"env": "SECRET"}}, SECRET=CANARY)

    assert f"{key}: takes no reference" in said
    assert CANARY not in said


@pytest.mark.parametrize("file", ["/proc/self/environ", "/proc/self/root/proc/self/environ", "/dev/stdin"])
def test_what_the_system_makes_up_is_never_read(file: str, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    everything = {"REPL_ALLOW_FILES": "/"}

    for name in (file, str(link)):
        assert "in no folder" in refused({"sasl.password": {"file": name}}, None, **everything)
        assert "in no folder" in refused({"ssl.ca.location": name}, None, **everything)


def test_only_regular_files_of_a_bounded_size_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * (2**20 + 1))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")

    def said(name: str) -> str:
        return refused({"sasl.password": {"file": str(tmp_path / name)}})

    assert "not a regular file" in said("pipe")
    assert "Is a directory" in said(".")
    assert "larger than 1 MiB" in said("large")
    assert "not text in UTF-8" in said("binary")
    assert "neither a file nor a folder" in refused({"ssl.ca.location": str(tmp_path / "pipe")})


def test_files_default_to_the_folder_of_the_topology(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    for folder in (own, other):
        folder.mkdir()
        (folder / "secret").write_text(CANARY)
    (own / "link").symlink_to(other / "secret")

    def client(file: Path) -> dict[str, Any]:
        return {"sasl.password": {"file": str(file)}}

    assert resolve(client(own / "secret"), (own,)) == {"sasl.password": CANARY}
    for outside in (other / "secret", own / "link", own / ".." / "other" / "secret"):
        assert "REPL_ALLOW_FILES" in refused(client(outside), (own,))
        assert resolve(client(outside), (own,), REPL_ALLOW_FILES=f"/nowhere, {other}")
    assert "REPL_ALLOW_FILES" in refused(client(own / "secret"), (own,), REPL_ALLOW_FILES=str(other))
    assert "REPL_ALLOW_FILES" in refused(client(own / "secret"), (own,), REPL_ALLOW_FILES="")


def test_files_that_a_client_reads_itself_must_be_in_the_folders_of_the_operator(tmp_path: Path) -> None:
    client = {"ssl.ca.location": str(tmp_path / "ca.pem")}

    assert resolve(client, ()) == client
    assert resolve(client, REPL_ALLOW_FILES=str(tmp_path)) == client
    assert "REPL_ALLOW_FILES" in refused(client, REPL_ALLOW_FILES=f"{tmp_path}/below")


@pytest.mark.parametrize(
    ("allowed", "taken"),
    [
        ("DC1_PASSWORD", True),
        ("DC1_*", True),
        ("A, DC1_PASSWORD ,B", True),
        ("*", True),
        ("DC1_PASSWOR", False),
        ("DC2_*", False),
        ("", False),
        ("dc1_password", False),
        ("D*D", False),
    ],
)
def test_the_operator_says_which_variables(allowed: str, taken: bool) -> None:
    client = {"sasl.password": {"env": "DC1_PASSWORD"}}
    environ = {"DC1_PASSWORD": CANARY, "REPL_ALLOW_ENV": allowed}

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
    client = {"sasl.oauthbearer.token.endpoint.url": url}

    if taken:
        secrets.check_addresses("one.example.org:9092", client)
    else:
        with pytest.raises(ClientSettingsError, match=r"token\.endpoint\.url"):
            secrets.check_addresses("one.example.org:9092", client)


def test_nothing_is_read_before_all_of_it_is_checked() -> None:
    class Watched(dict[str, str]):
        """Remembers which variables were looked up."""

        def get(self, name: str, default: Any = None) -> Any:
            looked_up.append(name)
            return super().get(name, default)

    looked_up: list[str] = []
    environ = Watched(A="a", B="b", REPL_ALLOW_ENV="A")
    with pytest.raises(ClientSettingsError, match="variable B"):
        ClientSecrets(environ).resolve("a:1", {"sasl.username": {"env": "A"}, "sasl.password": {"env": "B"}})
    with pytest.raises(ClientSettingsError, match="ALLOW_BOOTSTRAP"):
        ClientSecrets(Watched(A="a", REPL_ALLOW_BOOTSTRAP="b")).resolve("a:1", {"client.id": {"env": "A"}})
    assert set(looked_up) == {"REPL_ALLOW_ENV", "REPL_ALLOW_FILES", "REPL_ALLOW_BOOTSTRAP"}


def test_what_a_reference_came_to_is_hidden_in_the_text_of_others() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\n-----END PRIVATE KEY-----"
    client = {"sasl.password": {"env": "P"}, "sasl.username": {"env": "U"}, "ssl.key.pem": {"env": "K"}}
    resolve(client, P="a-long-password", U="zq", K=key)

    assert redacted("wrong: a-long-password!") == "wrong: (sensitive value)!"
    assert redacted("user 'zq' is unknown to zqx") == "user '(sensitive value)' is unknown to zqx"
    assert redacted("bad line MIIEvQIBADANBgkqhkiG9w0BAQ") == "bad line (sensitive value)"


def test_the_token_command_is_the_operators() -> None:
    general, own = "REPL_OAUTHBEARER_TOKEN_COMMAND", "REPL_OAUTHBEARER_TOKEN_COMMAND_DC_1"

    assert ClientSecrets({}).token_command("dc-1") is None
    assert ClientSecrets({general: "all"}).token_command("dc-1") == "all"
    assert ClientSecrets({general: "all", own: "one"}).token_command("dc-1") == "one"
    assert ClientSecrets({general: "all", own: ""}).token_command("dc-1") == "all"
    assert ClientSecrets({own: "one"}).token_command("dc2") is None
    assert "REPL_OAUTHBEARER_TOKEN_COMMAND" in refused({"repl.oauthbearer.token.command": "id"})
