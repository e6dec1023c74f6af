"""A topology gets no secret of the machine out: not by an error, not by a plan, not by the network."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

import pytest

from planner.cli.app import run
from planner.kafka import ClusterEndpoint
from planner.kafka.librdkafka import admin
from planner.model.diagnostic import ExitCode, Failure
from runtime.contract.client.keys import ALLOWED, CREDENTIALS
from runtime.contract.client.secrets import remember

pytestmark = pytest.mark.slow

CANARY = "canary-AKIA-4711/secret"
SILENT = "127.0.0.1:1"
TOKENS = "sasl.oauthbearer.token.endpoint.url"


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    for name in ("REPL_ALLOW_ENV", "REPL_ALLOW_FILES", "REPL_ALLOW_BOOTSTRAP"):
        monkeypatch.delenv(name, raising=False)


def topology(folder: Path, client: dict[str, Any], bootstrap: str = SILENT) -> Path:
    file = folder / "t.yaml"
    body = {
        "apiVersion": "repl/v1",
        "name": "shop",
        "clusters": {"dc1": {"bootstrap": bootstrap, "client": client}, "dc2": {"bootstrap": SILENT}},
        "topics": [{"name": "orders", "cluster": "dc1"}],
        "flows": [{"name": "f", "from": "dc1", "to": "dc2", "topics": {"include": ["orders"]}}],
    }
    file.write_text(json.dumps(body, indent=1))
    return file


def everything_said(
    folder: Path, file: Path, capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[int, str]:
    """All that `repl plan` leaves: both streams, Markdown, HTML, JSON, and the saved plan."""
    reports = [folder / name for name in ("plan.md", "plan.html", "plan.repl")]
    arguments = [f"--{name}={file}" for name, file in zip(("markdown", "html", "out"), reports, strict=True)]
    code = run(["plan", str(file), "--timeout", "100ms", *arguments, *options])
    shown = capsys.readouterr()
    run(["plan", str(file), "--timeout", "100ms", "--json", *options])
    as_json = capsys.readouterr()
    texts = [one.read_text() for one in reports if one.exists()]
    return code, "".join((shown.out, shown.err, as_json.out, as_json.err, *texts))


@pytest.mark.parametrize("key", sorted(ALLOWED - CREDENTIALS))
def test_a_setting_that_errors_may_quote_takes_no_reference(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = everything_said(
        tmp_path, topology(tmp_path, {key: {"env": "AWS_SECRET_ACCESS_KEY"}}), capsys
    )

    assert code == ExitCode.ERROR
    assert "takes no reference" in said
    assert CANARY not in said


@pytest.mark.parametrize("key", sorted(CREDENTIALS))
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_SSL", "SASL_PLAINTEXT", "SSL"])
def test_no_report_holds_what_a_credential_came_to(
    key: str, protocol: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client: dict[str, Any] = {"security.protocol": protocol, "sasl.mechanism": "PLAIN"}
    client |= {"sasl.username": "u", "sasl.password": {"env": "AWS_SECRET_ACCESS_KEY"}}
    if "oauthbearer" in key:
        client |= {"sasl.mechanism": "OAUTHBEARER", "enable.sasl.oauthbearer.unsecure.jwt": "true"}
    client[key] = {"env": "AWS_SECRET_ACCESS_KEY"}

    _, said = everything_said(tmp_path, topology(tmp_path, client), capsys)

    assert "dc1" in said
    assert CANARY not in said


@pytest.mark.parametrize("file", ["/proc/self/environ", "/etc/passwd", "../outside", "link", "/dev/stdin"])
def test_no_file_of_the_machine_is_read(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (tmp_path / "outside").write_text(CANARY)
    (own / "link").symlink_to(tmp_path / "outside")
    client = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u"}

    code, said = everything_said(own, topology(own, {**client, "sasl.password": {"file": file}}), capsys)

    assert code == ExitCode.ERROR
    assert "is in no folder that a topology may read here" in said
    assert CANARY not in said


@pytest.mark.parametrize("target", ["/proc/self/environ", "outside.yaml"])
def test_a_link_in_the_topologys_folder_shows_no_other_file(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (tmp_path / "outside.yaml").write_text(f"{CANARY}: true\n")
    topology(own, {})
    (own / "link.yaml").symlink_to(tmp_path / target)

    assert run(["validate", str(own)]) == ExitCode.ERROR
    said = capsys.readouterr().err
    assert "link.yaml is a link to a file outside" in said
    assert CANARY not in said
    if target != "outside.yaml":
        assert run(["validate", str(own / "link.yaml")]) == ExitCode.ERROR
        assert "is a link to a file outside" in capsys.readouterr().err
        return
    monkeypatch.setenv("REPL_ALLOW_FILES", str(tmp_path))
    assert run(["validate", str(own)]) == ExitCode.ERROR
    assert "unknown key" in capsys.readouterr().err


@contextmanager
def listener() -> Iterator[tuple[str, list[bytes]]]:
    """A broker of somebody else: it takes what it is sent, and says nothing."""
    got: list[bytes] = []

    class Taking(BaseRequestHandler):
        def handle(self) -> None:
            got.append(self.request.recv(65536))

    with ThreadingTCPServer(("127.0.0.1", 0), Taking) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}", got
        server.shutdown()


@pytest.mark.parametrize("command", ["plan", "status", "drift", "history", "destroy"])
def test_no_command_connects_to_an_address_that_is_not_allowed(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPL_ALLOW_BOOTSTRAP", "*.example.org:9093,127.0.0.1:1")
    with listener() as (address, got):
        file = topology(tmp_path, {"sasl.password": {"env": "AWS_SECRET_ACCESS_KEY"}}, address)

        assert run([command, str(file)]) == ExitCode.ERROR
        assert got == []
    said = capsys.readouterr().err
    assert f"{address} is not among the addresses that this machine allows" in said
    assert "REPL_ALLOW_BOOTSTRAP" in said


def test_a_token_endpoint_is_an_address_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPL_ALLOW_BOOTSTRAP", SILENT)
    with listener() as (address, got):
        client = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            TOKENS: f"http://{address}/token",
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": {"env": "AWS_SECRET_ACCESS_KEY"},
        }
        assert run(["plan", str(topology(tmp_path, client))]) == ExitCode.ERROR
        assert got == []
    assert TOKENS in capsys.readouterr().err


def test_a_variable_that_is_not_allowed_is_not_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPL_ALLOW_ENV", "REPL_USER,DC1_*")
    file = topology(tmp_path, {"client.id": {"env": "AWS_SECRET_ACCESS_KEY"}})

    code, said = everything_said(tmp_path, file, capsys)

    assert code == ExitCode.ERROR
    assert "the environment variable AWS_SECRET_ACCESS_KEY is not among those" in said


def test_what_librdkafka_quotes_is_not_repeated() -> None:
    settings = {"broker.address.family": CANARY}

    with pytest.raises(Failure) as refused:
        admin(ClusterEndpoint("dc1", SILENT, settings))
    assert "broker.address.family" in str(refused.value)
    assert CANARY not in str(refused.value)


def test_a_user_name_that_is_a_reference_is_not_in_an_error() -> None:
    from planner.kafka.failures import Refused
    from runtime.kafka.errors import AuthenticationFailed, BrokerError, ErrorCode

    remember(CANARY)
    errors = (
        Refused(f"no such user {CANARY}"),
        AuthenticationFailed("dc1:1", f"no such user {CANARY}"),
        BrokerError(ErrorCode.SASL_AUTHENTICATION_FAILED, "dc1:1", f"no such user {CANARY}"),
    )
    assert all("no such user (sensitive value)" in str(one) for one in errors)
