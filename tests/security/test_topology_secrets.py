"""A topology gets no secret of the machine out: not by an error, not by a plan, not by the network."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

import pytest

from planner.kafka import ClusterEndpoint
from planner.kafka.failures import Refused
from planner.kafka.librdkafka import admin
from planner.model.diagnostic import ExitCode, Failure
from runtime.contract.client.keys import CREDENTIALS
from runtime.contract.client.secrets import remember
from runtime.kafka.errors import AuthenticationFailed, BrokerError, ErrorCode
from tests.security.conftest import Command
from tests.topologies import Topology, declared

pytestmark = pytest.mark.slow

CANARY = "canary-AKIA-4711/secret"
SILENT = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    for name in ("REPL_ALLOW_ENV", "REPL_ALLOW_FILES", "REPL_ALLOW_BOOTSTRAP"):
        monkeypatch.delenv(name, raising=False)


def topology(folder: Path, client: dict[str, Any], bootstrap: str = SILENT) -> Path:
    clusters: dict[str, dict[str, Any]] = {
        "dc1": {"bootstrap": bootstrap, "client": client},
        "dc2": {"bootstrap": SILENT},
    }
    made = Topology("shop", folder / "t.yaml", clusters, more={"flows": [declared("f", "orders")]})
    made.topic("orders")
    return made.write()


Planned = Callable[[Path], tuple[int, str]]


@pytest.fixture
def planned(tmp_path: Path, command: Command) -> Planned:
    """How `repl plan` ends, and all that it leaves: both streams, Markdown, HTML, JSON, the saved plan."""

    def everything_said(file: Path) -> tuple[int, str]:
        reports = [tmp_path / name for name in ("plan.md", "plan.html", "plan.repl")]
        options = [f"--{name}={to}" for name, to in zip(("markdown", "html", "out"), reports, strict=True)]
        shown = command("plan", file, "--timeout", "100ms", *options)
        as_json = command("plan", file, "--timeout", "100ms", "--json")
        texts = [one.read_text() for one in reports if one.exists()]
        return shown.code, "".join((shown.out, shown.err, as_json.out, as_json.err, *texts))

    return everything_said


def test_a_setting_that_errors_may_quote_takes_no_reference(tmp_path: Path, planned: Planned) -> None:
    """All of them are in a table of `runtime/contract/test_client.py`."""
    code, said = planned(topology(tmp_path, {"client.rack": {"env": "AWS_SECRET_ACCESS_KEY"}}))
    assert code == ExitCode.ERROR
    assert "takes no reference" in said
    assert CANARY not in said


@pytest.mark.parametrize("key", sorted(CREDENTIALS))
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SSL"])
def test_no_report_holds_what_a_credential_came_to(
    key: str, protocol: str, tmp_path: Path, planned: Planned
) -> None:
    client: dict[str, Any] = {"security.protocol": protocol, "sasl.mechanism": "PLAIN"}
    client |= {"sasl.username": "u", "sasl.password": {"env": "AWS_SECRET_ACCESS_KEY"}}
    if "oauthbearer" in key:
        client |= {"sasl.mechanism": "OAUTHBEARER", "enable.sasl.oauthbearer.unsecure.jwt": "true"}
    client[key] = {"env": "AWS_SECRET_ACCESS_KEY"}
    _, said = planned(topology(tmp_path, client))
    assert "dc1" in said
    assert CANARY not in said


@pytest.mark.parametrize("file", ["/etc/passwd", "link"])
def test_no_file_of_the_machine_is_read(file: str, tmp_path: Path, planned: Planned) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (tmp_path / "outside").write_text(CANARY)
    (own / "link").symlink_to(tmp_path / "outside")
    client = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
    code, said = planned(topology(own, {**client, "sasl.password": {"file": file}}))
    assert code == ExitCode.ERROR
    assert "is in no folder that a topology may read here" in said
    assert CANARY not in said


@pytest.mark.parametrize("target", ["/proc/self/environ", "outside.yaml"])
def test_a_link_in_the_topologys_folder_shows_no_other_file(
    target: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (tmp_path / "outside.yaml").write_text(f"{CANARY}: true\n")
    topology(own, {})
    (own / "link.yaml").symlink_to(tmp_path / target)
    named_itself = [own / "link.yaml"] if target != "outside.yaml" else []
    for path in (own, *named_itself):
        ended = command("validate", path)
        assert (ended.code, CANARY in ended.err) == (ExitCode.ERROR, False)
        assert "link.yaml is a link to a file outside" in ended.err
    if not named_itself:
        monkeypatch.setenv("REPL_ALLOW_FILES", str(tmp_path))
        assert "unknown key" in command("validate", own).err


@pytest.mark.parametrize("named", ["topology", "topology/inner", "topology/outside.yaml"])
def test_a_link_in_the_place_of_the_topologys_folder_shows_no_other_file(
    named: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout has what a pull request made of it, and the pipeline names a folder in it."""
    (tmp_path / "outside" / "inner").mkdir(parents=True)
    for folder in (tmp_path / "outside", tmp_path / "outside" / "inner"):
        (folder / "outside.yaml").write_text(f"name: '{CANARY} *'\n")
    (tmp_path / "checkout").mkdir()
    monkeypatch.chdir(tmp_path / "checkout")
    Path("topology").symlink_to(tmp_path / "outside")
    for path in (named, Path(named).absolute()):
        monkeypatch.setenv("REPL_ALLOW_FILES", "/run/secrets")
        ended = command("validate", path)
        assert (ended.code, CANARY in ended.err) == (ExitCode.ERROR, False)
        assert "topology is a link to a folder outside the current one" in ended.err
        monkeypatch.setenv("REPL_ALLOW_FILES", str(tmp_path / "outside"))
        assert CANARY in command("validate", path).err
    if named != "topology/inner":  # the operator names the link itself: from any other folder, too
        (tmp_path / "other").mkdir()
        link = Path(named).absolute()
        monkeypatch.chdir(tmp_path / "other")
        monkeypatch.setenv("REPL_ALLOW_FILES", "/run/secrets")
        assert "topology is a link to a folder outside the current one" in command("validate", link).err


@contextmanager
def listener() -> Iterator[tuple[str, list[bytes]]]:
    """A broker of somebody else: it takes what it is sent, and says nothing."""
    got: list[bytes] = []

    class Taking(BaseRequestHandler):
        def handle(self) -> None:
            got.append(self.request.recv(65536))

    with ThreadingTCPServer(("127.0.0.1", 0), Taking) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}", got
        server.shutdown()


@pytest.mark.parametrize("verb", ["plan", "status", "drift", "history", "destroy"])
def test_no_command_connects_to_an_address_that_is_not_allowed(
    verb: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPL_ALLOW_BOOTSTRAP", "*.example.org:9093,127.0.0.1:1")
    with listener() as (address, got):
        ended = command(
            verb, topology(tmp_path, {"sasl.password": {"env": "AWS_SECRET_ACCESS_KEY"}}, address)
        )
        assert (ended.code, got) == (ExitCode.ERROR, [])
    assert f"{address} is not among the addresses that this machine allows" in ended.err
    assert "REPL_ALLOW_BOOTSTRAP" in ended.err


def test_a_variable_that_is_not_allowed_is_not_sent(
    tmp_path: Path, planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPL_ALLOW_ENV", "REPL_USER,DC1_*")
    code, said = planned(topology(tmp_path, {"client.id": {"env": "AWS_SECRET_ACCESS_KEY"}}))
    assert code == ExitCode.ERROR
    assert "the environment variable AWS_SECRET_ACCESS_KEY is not among those" in said


def test_what_librdkafka_quotes_is_not_repeated() -> None:
    settings = {"broker.address.family": CANARY}

    with pytest.raises(Failure) as refused:
        admin(ClusterEndpoint("dc1", SILENT, settings))
    assert "broker.address.family" in str(refused.value)
    assert CANARY not in str(refused.value)


def test_a_user_name_that_is_a_reference_is_not_in_an_error() -> None:
    remember(CANARY)
    errors = (
        Refused(f"no such user {CANARY}"),
        AuthenticationFailed("dc1:1", f"no such user {CANARY}"),
        BrokerError(ErrorCode.SASL_AUTHENTICATION_FAILED, "dc1:1", f"no such user {CANARY}"),
    )
    assert all("no such user (sensitive value)" in str(one) for one in errors)
