"""`repl plan --untrusted`: the operator says what a topology may use, and nobody else can listen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from planner.model.diagnostic import ExitCode
from tests.security.conftest import Command

LISTS = ("REPL_ALLOW_ENV", "REPL_ALLOW_FILES", "REPL_ALLOW_BOOTSTRAP")
HEAD = "apiVersion: repl/v1\nname: shop\ntopics: [{name: orders, cluster: dc1}]\nclusters:\n"


@pytest.fixture(autouse=True)
def operator(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LISTS:
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("REPL_ALLOW_BOOTSTRAP", "*")


Refused = Callable[..., str]


@pytest.fixture
def refused(tmp_path: Path, command: Command) -> Refused:
    """refused(client, *options) → the error of a plan whose cluster has this client."""

    def error(client: str = "{}", *options: object, more: str = "") -> str:
        file = tmp_path / "t.yaml"
        file.write_text(f"{HEAD}  dc1: {{bootstrap: 'kafka.invalid:9092', client: {client}}}\n{more}")
        ended = command("plan", file, "--untrusted", *options)
        assert ended.code == ExitCode.ERROR
        return ended.err

    return error


@pytest.mark.parametrize("missing", [LISTS[:1], LISTS[1:], LISTS])
def test_the_lists_of_the_operator_must_be_set(
    missing: tuple[str, ...], refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in missing:
        monkeypatch.delenv(name)
    said = refused()
    assert [name for name in LISTS if f"--untrusted needs {name}" in said] == list(missing)


@pytest.mark.parametrize(
    ("client", "why"),
    [
        ("{security.protocol: SASL_PLAINTEXT, sasl.mechanism: PLAIN}", "clear text"),
        ("{security.protocol: SSL, enable.ssl.certificate.verification: false}", "impersonate a broker"),
        ("{security.protocol: SSL, ssl.endpoint.identification.algorithm: none}", "impersonate a broker"),
    ],
)
def test_nothing_lets_others_listen(client: str, why: str, refused: Refused) -> None:
    said = refused(client)
    assert "error:" in said
    assert why in said


STORE = "endpoints: {lake: {file: 's3a://bucket', client: %s}}\n"
INTO = f"{STORE}flows: [{{name: f, from: dc1, to: lake, topics: {{include: [orders]}}}}]\n"
FROM = "flows: [{name: lake, from: {file: 's3a://bucket', client: %s}, to: dc1, topics: {to: orders}}]\n"
KEYS = "access.key: {env: DC1_KEY}, secret.key: {env: DC1_SECRET}"


@pytest.mark.parametrize(
    ("client", "why"),
    [
        (
            f"{{endpoint: 'https://evil.net', {KEYS}}}",
            '"endpoint" of endpoint lake: evil.net:443 is not among',
        ),
        (f"{{region: eu-1, {KEYS}}}", "s3.eu-1.amazonaws.com:443 is not among the addresses"),
        (
            "{endpoint: 'https://s3.ours.org', access.key: {env: DC1_KEY}, secret.key: {file: /etc/passwd}}",
            "the file /etc/passwd is in no folder that a topology may read here",
        ),
        (f"{{endpoint: 'http://s3.ours.org', {KEYS}}}", "in clear text"),
    ],
)
@pytest.mark.parametrize("flow", [INTO, FROM], ids=["into", "from"])
def test_credentials_go_to_no_other_store(
    flow: str, client: str, why: str, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPL_ALLOW_BOOTSTRAP", "kafka.invalid,s3.ours.org")
    monkeypatch.setenv("REPL_ALLOW_ENV", "DC1_*")
    assert why in refused(more=flow % client)


@pytest.mark.parametrize("line", ["plan {}", "apply {}", "pause f --path {}"])
def test_no_command_plans_with_a_store_that_this_machine_does_not_allow(
    line: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPL_ALLOW_BOOTSTRAP", "kafka.invalid")
    file = tmp_path / "t.yaml"
    file.write_text(f"{HEAD}  dc1: {{bootstrap: 'kafka.invalid:9092'}}\n{INTO % '{}'}")

    ended = command(*line.format(file).split())

    assert ended.code == ExitCode.ERROR
    assert "s3.us-east-1.amazonaws.com:443 is not among the addresses" in ended.err


def test_variables_come_from_the_topologys_own_folder(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, refused: Refused
) -> None:
    other = tmp_path_factory.mktemp("other") / "other.vars.yaml"
    other.write_text("a: 1\n")
    (tmp_path / "link.vars.yaml").symlink_to(other)
    for file in (other, tmp_path / "link.vars.yaml"):
        assert "takes no variables from" in refused("{}", "--var-file", file)


def test_a_rollback_is_planned_from_what_was_merged(refused: Refused) -> None:
    assert "--rollback" in refused("{}", "--rollback", "1")


def test_a_topology_may_not_choose_a_role_of_aws(refused: Refused) -> None:
    login = "security.protocol: SASL_SSL, sasl.mechanism: AWS_MSK_IAM, sasl.aws.region: eu-west-1"
    role = "sasl.aws.role.arn: 'arn:aws:iam::123456789012:role/admin'"
    assert "--untrusted takes no sasl.aws.role.arn" in refused(f"{{{login}, {role}}}")
