"""`repl init`, `repl schema` and `repl completion`."""

# ruff: noqa: E501  (the long lines are what a user reads)

import json
from pathlib import Path

import click
import pytest

from planner.cli.app import COMMANDS, GROUPS, root, run
from planner.config.schema import json_schema
from planner.config.schema.explain import all_keys, find_keys
from tests.commands import repl


class TestInit:
    def test_the_starter_validates(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        folder = tmp_path / "new" / "topology"
        files = [folder / "topology.yaml", folder / "topology.schema.json"]
        assert run(["init", str(folder)]) == 0
        assert capsys.readouterr().out == (
            f"Wrote {files[0]} and {files[1]}. Next: edit it, then repl validate {folder} and repl plan {folder}.\n"
        )
        assert files[0].read_text().startswith("# yaml-language-server: $schema=topology.schema.json\n")
        assert json.loads(files[1].read_text()) == json_schema()
        assert run(["validate", str(folder)]) == 0
        assert capsys.readouterr() == ("Valid: 2 clusters, 1 topic, 1 flow, 1 job.\n", "")
        assert run(["init", str(tmp_path / "other"), "--json"]) == 0
        written = [str(tmp_path / "other" / file.name) for file in files]
        assert json.loads(capsys.readouterr().out) == {"format_version": 1, "files": written}

    @pytest.mark.parametrize("name", ["shop.yaml", "new/shop.YML"])
    def test_a_name_with_a_yaml_suffix_is_a_file(self, name, tmp_path, capsys) -> None:
        file = tmp_path / name
        schema = file.parent / "topology.schema.json"
        file.parent.mkdir(exist_ok=True)
        schema.write_text("{}")  # it is there already, and stays
        assert run(["init", str(file)]) == 0
        assert capsys.readouterr().out == (
            f"Wrote {file}. Next: edit it, then repl validate {file} and repl plan {file}.\n"
        )
        assert schema.read_text() == "{}"
        assert run(["validate", str(file)]) == 0

    @pytest.mark.parametrize(
        ("path", "why"),
        [
            ("", "topology.yaml is there already"),
            ("topology.yaml", "topology.yaml is there already"),
            ("prod.vars.yaml", "a file of variables by its name"),
            ("file", "/file is no folder — name another folder or file: repl init PATH"),
            ("file/below", "Not a directory"),
        ],
    )
    def test_it_overwrites_nothing(self, path, why, tmp_path, capsys) -> None:
        for name in ("topology.yaml", "file"):
            (tmp_path / name).write_text("mine\n")
        assert run(["init", str(tmp_path / path)]) == 1
        assert why in capsys.readouterr().err
        assert {one.name: one.read_text() for one in tmp_path.iterdir()} == dict.fromkeys(
            ("topology.yaml", "file"), "mine\n"
        )


class TestFmt:
    def test_check_tells_and_writes_nothing(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "t.yaml"
        file.write_bytes(b"topics: []\r\nname: x\r\n")
        assert run(["fmt", str(tmp_path), "--check"]) == 2
        assert capsys.readouterr() == (f"{file}\n", f"Not formatted. Run: repl fmt {tmp_path}\n")
        assert file.read_bytes() == b"topics: []\r\nname: x\r\n"
        assert run(["fmt", str(tmp_path)]) == 0
        assert capsys.readouterr() == (f"{file}\n", "")
        assert file.read_bytes() == b"name: x\r\ntopics: []\r\n"
        assert run(["fmt", "--check", "--json", str(tmp_path)]) == 0
        assert json.loads(capsys.readouterr().out) == {"format_version": 1, "check": True, "files": []}

    def test_a_file_that_is_not_yaml_stops_all(self, tmp_path, capsys) -> None:
        (tmp_path / "a.yaml").write_text("topics: []\nname: x\n")
        (tmp_path / "b.yaml").write_text("a: [\n")
        assert run(["fmt", str(tmp_path)]) == 1
        assert f"{tmp_path}/b.yaml:" in capsys.readouterr().err
        assert (tmp_path / "a.yaml").read_text() == "topics: []\nname: x\n"

    def test_the_examples_and_the_starter_are_formatted(self) -> None:
        assert run(["fmt", "--check", "plans/examples"]) == 0
        assert run(["fmt", "--check", "planner/config/schema"]) == 0


class TestExplain:
    def test_a_key(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "100")
        assert run(["explain", "flows.rpo"]) == 0
        assert capsys.readouterr().out == (
            "flows.rpo\n\n"
            "  The acceptable lag: alerts use it, and no transaction lasts longer than half of it.\n\n"
            "  Takes:    a duration such as 500ms, 30s or 7d\n"
            "  Default:  unset\n"
            "  Example:  rpo: 5s\n\n"
            "Also: defaults.flow.rpo\n"
        )

    def test_a_narrow_terminal(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "60")
        assert run(["explain", "flows.topics"]) == 0
        told = capsys.readouterr().out
        assert 50 < max(map(len, told.splitlines())) <= 60
        include, more, *_ = told.partition("Keys below it:\n\n")[2].splitlines()
        assert include.index("Regexes") == len(more) - len(more.lstrip())

    @pytest.mark.parametrize(
        ("words", "path"),
        [
            ("rpo", "flows.rpo"),
            ("flow.rpo", "flows.rpo"),
            ("flows[0].topics.include", "flows.topics.include"),
            ("clusters.dc1.client", "clusters.client"),
            ("topics.exclude", "flows.topics.exclude"),
            ("jobs.dc2.metrics.port", "jobs.metrics.port"),
            ("defaults.flow.start.offsets", "defaults.flow.start.offsets"),
        ],
    )
    def test_a_path_or_its_end(self, words: str, path: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["explain", words, "--json"]) == 0
        assert [key["path"] for key in json.loads(capsys.readouterr().out)["keys"]] == [path]

    def test_every_key_is_found_by_its_path(self) -> None:
        for entry in all_keys():
            assert find_keys(entry.path) == [entry]

    @pytest.mark.parametrize(
        ("words", "hint"),
        [
            ("flows.rpoo", 'did you mean "flows.rpo"?'),
            ("flowz", 'did you mean "flows"?'),
            ("heartbeat", 'did you mean "heartbeats"?'),
            ("zzz", "repl explain lists the keys at the top"),
        ],
    )
    def test_the_nearest_right_word(self, words: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["explain", words]) == 1
        assert capsys.readouterr().err == f'error: the language has no key "{words}" — {hint}\n'


class TestWithoutCommand:
    @pytest.mark.parametrize(
        ("name", "said", "commands"),
        [
            (
                "shop.yaml",
                "This folder has a topology (shop.yaml). Next:",
                ["repl plan", "repl apply", "repl status"],
            ),
            (
                "README.md",
                "There is no topology in this folder. Begin with one of these:",
                ["repl init", "repl import", "repl lab"],
            ),
        ],
    )
    def test_a_folder(self, name, said, commands, tmp_path, capsys, monkeypatch) -> None:
        (tmp_path / "a.yaml").write_text("kind: Deployment\napiVersion: apps/v1\n")
        (tmp_path / name).write_text("# mine\napiVersion: repl/v1\n")
        monkeypatch.chdir(tmp_path)
        assert run([]) == 0
        begin, _, *steps = capsys.readouterr().out.splitlines()
        assert begin == said
        assert [" ".join(line.split()[:2]) for line in steps[:3]] == commands

    def test_each_command_takes_one_line_of_a_terminal(self) -> None:
        lines = root.get_help(click.Context(root, info_name="repl")).splitlines()
        assert [title for title in GROUPS if f"{title}:" not in lines] == []
        listed = [line.split()[0] for line in lines if line.startswith("  ") and not line.startswith("   ")]
        assert [name for name in listed if name in COMMANDS] == list(COMMANDS)
        assert not [line for line in lines if line.startswith(" " * 10)]


class TestCompletion:
    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_a_script_for_each_shell(self, shell: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["completion", shell, "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert f"_REPL_COMPLETE={shell}_complete" in printed["script"]
        assert printed | {"script": ""} == {"format_version": 1, "shell": shell, "script": ""}
        assert run(["completion", shell]) == 0
        assert capsys.readouterr().out == f"{printed['script']}\n"

    def test_another_shell_is_refused(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["completion", "csh"]) == 1
        assert "'csh' is not one of" in capsys.readouterr().err

    def test_commands_and_options_are_completed(self) -> None:
        assert {name.partition(",")[2] for name in completed("repl ")} >= set(COMMANDS)
        assert completed("repl validate --j") == ["plain,--json"]


def completed(line: str) -> list[str]:
    typed = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    return repl(env={"_REPL_COMPLETE": "bash_complete", **typed}).stdout.splitlines()
