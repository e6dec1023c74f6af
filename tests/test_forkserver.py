"""A forked command does what a command of a new interpreter does."""

import socket
import subprocess
from pathlib import Path

import pytest

from tests.commands import REPL, environment, repl
from tests.forkserver import next_server, read_at_start

DEMO = str(Path(__file__).parents[1] / "plans" / "examples" / "replicator-demo.yaml")


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [("--version",), ("schema",), ("validate", DEMO), ("validate", "no-such-file.yaml"), ("plan", "--wrong")],
    ids=" ".join,
)
def test_output_and_exit_code_are_those_of_a_new_interpreter(arguments: tuple[str, ...]) -> None:
    env = environment({})
    new = subprocess.run([*REPL, *arguments], env=env, capture_output=True, text=True, check=False)
    forked = repl(*arguments)
    assert (forked.returncode, forked.stdout, forked.stderr) == (new.returncode, new.stdout, new.stderr)


def test_environment_and_folder_are_those_of_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "demo.yaml").write_text(Path(DEMO).read_text())
    assert repl("validate", "demo.yaml").returncode == 1
    monkeypatch.chdir(tmp_path)
    assert repl("validate", "demo.yaml").returncode == 0
    narrow, wide = (repl("plan", "--help", env={"COLUMNS": width}).stdout for width in ("50", "200"))
    assert max(map(len, narrow.splitlines())) <= 50 < max(map(len, wide.splitlines()))


@pytest.mark.slow
def test_a_command_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        file = tmp_path / "silent.yaml"
        bootstrap = f"127.0.0.1:{silent.getsockname()[1]}"
        file.write_text(
            f"apiVersion: repl/v1\nname: shop\nclusters: {{dc1: {{bootstrap: '{bootstrap}'}}}}\n"
            "topics: [{name: orders, cluster: dc1}]\n"
        )
        with pytest.raises(subprocess.TimeoutExpired, match="timed out after 3 seconds"):
            repl("plan", str(file), "--timeout", "200s", timeout=3)
        connection, _ = silent.accept()
        connection.settimeout(60)
        with connection:
            while connection.recv(1024):
                pass  # it ends: the process that held the other side is gone


def test_successive_commands_have_different_servers_and_so_different_hash_seeds() -> None:
    usual = environment({})
    first, second, third = (next_server(usual) for _ in range(3))
    assert first is not second
    assert first is third


@pytest.mark.parametrize(
    ("variable", "kept"),
    [("PYTHONUTF8", True), ("LC_ALL", True), ("REPL_FAILPOINT", True), ("REPL_HOME", False), ("PATH", False)],
)
def test_what_an_interpreter_reads_at_its_start_is_not_forked(variable: str, kept: bool) -> None:
    assert (variable in read_at_start({variable: "1"})) is kept
