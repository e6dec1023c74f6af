"""`repl init`, `repl schema` and `repl completion`."""

# ruff: noqa: E501  (the long lines are what a user reads)

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from planner.cli.app import COMMANDS, run


class TestInit:
    def test_the_starter_validates(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        folder = tmp_path / "new" / "topology"
        assert run(["init", str(folder)]) == 0
        assert capsys.readouterr().out == (
            f"Wrote {folder}/topology.yaml. Next: edit it, then repl validate {folder} and repl plan {folder}.\n"
        )
        assert run(["validate", str(folder)]) == 0
        assert capsys.readouterr() == ("Valid: 2 clusters, 1 topic, 1 flow, 1 job.\n", "")

    def test_for_programs(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["init", str(tmp_path), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told == {"format_version": 1, "files": [str(tmp_path / "topology.yaml")]}

    def test_the_current_folder_is_the_default(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert run(["init"]) == 0
        assert (
            capsys.readouterr().out
            == "Wrote topology.yaml. Next: edit it, then repl validate and repl plan.\n"
        )

    @pytest.mark.parametrize("name", ["topology.yaml", "other.yml"])
    def test_it_overwrites_nothing(
        self, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / name).write_text("mine\n")
        assert run(["init", str(tmp_path)]) == 1
        assert f"{tmp_path / name} is there already" in capsys.readouterr().err
        assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [(name, "mine\n")]

    @pytest.mark.parametrize("name", ["shop.yaml", "new/shop.YML"])
    def test_a_name_with_a_yaml_suffix_is_a_file(
        self, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / name
        assert run(["init", str(file)]) == 0
        assert capsys.readouterr().out == (
            f"Wrote {file}. Next: edit it, then repl validate {file} and repl plan {file}.\n"
        )
        assert run(["validate", str(file)]) == 0
        assert run(["init", str(file)]) == 1
        assert f"{file} is there already" in capsys.readouterr().err

    def test_a_file_of_variables_is_no_topology(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(["init", str(tmp_path / "prod.vars.yaml")]) == 1
        assert "a file of variables by its name" in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []

    def test_a_file_is_no_folder(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "file").write_text("")
        assert run(["init", str(tmp_path / "file")]) == 1
        assert (
            capsys.readouterr().err
            == f"error: {tmp_path}/file is no folder — name another folder or file: repl init PATH\n"
        )
        assert run(["init", str(tmp_path / "file" / "below")]) == 1
        assert "Not a directory" in capsys.readouterr().err


class TestSchema:
    @pytest.mark.parametrize("words", [["schema"], ["schema", "--json"]])
    def test_it_is_json(self, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert run(words) == 0
        assert json.loads(capsys.readouterr().out)["title"] == "repl topology"

    def test_the_reference_is_the_documented_page(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["schema", "--markdown"]) == 0
        assert capsys.readouterr().out == Path("docs/topology.md").read_text(encoding="utf-8")


class TestCompletion:
    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_a_script_for_each_shell(self, shell: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["completion", shell]) == 0
        assert f"_REPL_COMPLETE={shell}_complete" in capsys.readouterr().out

    def test_another_shell_is_refused(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["completion", "csh"]) == 1
        assert "'csh' is not one of" in capsys.readouterr().err

    def test_commands_and_options_are_completed(self) -> None:
        assert {name.partition(",")[2] for name in completed("repl ")} >= set(COMMANDS)
        assert completed("repl validate --j") == ["plain,--json"]

    def test_bash_takes_the_script(self, capsys: pytest.CaptureFixture[str]) -> None:
        run(["completion", "bash"])
        subprocess.run(["bash", "-n"], input=capsys.readouterr().out, text=True, check=True, timeout=10)


def completed(line: str) -> list[str]:
    words = line.split(" ")
    environment = {
        **os.environ,
        "_REPL_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-m", "planner"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.stdout.splitlines()
