"""`repl plan --untrusted`: the operator says what a topology may use, and nobody else can listen."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.cli.app import run
from planner.model.diagnostic import ExitCode

LISTS = ("REPL_ALLOW_ENV", "REPL_ALLOW_FILES", "REPL_ALLOW_BOOTSTRAP")
HEAD = "apiVersion: repl/v1\nname: shop\ntopics: [{name: orders, cluster: dc1}]\nclusters:\n"


@pytest.fixture(autouse=True)
def operator(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LISTS:
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("REPL_ALLOW_BOOTSTRAP", "*")


def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], client: str = "{}", *options: str) -> str:
    file = tmp_path / "t.yaml"
    file.write_text(f"{HEAD}  dc1: {{bootstrap: 'kafka.invalid:9092', client: {client}}}\n")
    assert run(["plan", str(file), "--untrusted", *options]) == ExitCode.ERROR
    return capsys.readouterr().err


@pytest.mark.parametrize("missing", [LISTS[:1], LISTS[1:], LISTS])
def test_the_lists_of_the_operator_must_be_set(
    missing: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in missing:
        monkeypatch.delenv(name)

    said = refused(tmp_path, capsys)

    assert [name for name in LISTS if f"--untrusted needs {name}" in said] == list(missing)


@pytest.mark.parametrize(
    ("client", "why"),
    [
        ("{security.protocol: SASL_PLAINTEXT, sasl.mechanism: PLAIN}", "clear text"),
        ("{security.protocol: SSL, enable.ssl.certificate.verification: false}", "impersonate a broker"),
        ("{security.protocol: SSL, ssl.endpoint.identification.algorithm: none}", "impersonate a broker"),
    ],
)
def test_nothing_lets_others_listen(
    client: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(tmp_path, capsys, client)

    assert "error:" in said
    assert why in said


def test_variables_come_from_the_topologys_own_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, other = tmp_path / "own", tmp_path / "other.vars.yaml"
    own.mkdir()
    other.write_text("a: 1\n")
    (own / "link.vars.yaml").symlink_to(other)

    for file in (other, own / "link.vars.yaml"):
        assert "takes no variables from" in refused(own, capsys, "{}", "--var-file", str(file))


def test_a_rollback_is_planned_from_what_was_merged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--rollback" in refused(tmp_path, capsys, "{}", "--rollback", "1")
