"""The command line as a whole: help loads little, and an error that nothing expects is one line."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from planner.cli import app
from runtime.contract.client.secrets import remember
from tests.commands import environment
from tests.topologies import without_answer

HERE = Path(__file__).resolve().parents[3]
# What the root command needs, so every command has it. A command's own module adds its options alone.
PARSING = {
    "planner",
    "planner.cli",
    "planner.model",
    "planner.model.diagnostic",
    "planner.model.times",
    "planner.render",
    "planner.render.readable",
    "planner.workflows",
    "planner.workflows.new_files",
    "planner.workflows.options",
    "planner.workflows.requests",
    "runtime",
    "runtime.contract",
    "runtime.contract.extras",
    "runtime.contract.spec",
    "runtime.contract.spec.units",
}
PROGRAM = """
import sys
from click.testing import CliRunner
from planner.cli.app import COMMANDS, root

for name in COMMANDS:
    before = set(sys.modules)
    assert CliRunner().invoke(root, [name, "--help"]).exit_code == 0, name
    print(name, *set(sys.modules) - before)
print("all", *sys.modules)
"""


def test_help_loads_no_more_than_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=HERE, capture_output=True, text=True, check=True, timeout=60
    )
    *lines, everything = (line.split() for line in done.stdout.splitlines())

    ours = {one for one in everything[1:] if one.split(".")[0] in ("planner", "runtime")}
    assert not {one for one in ours - PARSING if not one.startswith("planner.cli.")}
    assert not {"asyncio", "confluent_kafka", "deepdiff", "jinja2", "rich", "yaml"} & {*everything}
    # msgspec, of which the requests are made, comes with the first command.
    own = {name: [one for one in added if one.startswith("planner.")] for name, *added in lines}
    assert {name: added for name, added in own.items() if len(added) > 8} == {}


def test_a_command_that_breaks_says_so_in_one_line(monkeypatch, capsys, tmp_path) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("divided hush-hush by 0\nsecond line")

    remember("hush-hush")
    monkeypatch.setenv("REPL_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(app.root, "main", broken)

    code = app.run(["plan"])

    (line,) = capsys.readouterr().err.splitlines()
    assert code == 1
    assert line.startswith(
        "error: unexpected ZeroDivisionError: divided (sensitive value) by 0; its traceback is in "
    )
    (file,) = (tmp_path / "home" / "errors").iterdir()
    assert str(file) in line
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "in broken" in file.read_text()


@pytest.mark.parametrize(
    ("command", "code", "err"),
    [
        ("schema | true", 0, ""),
        ("validate missing.yaml --json | true", 1, ""),
        ("schema >&-", 0, ""),
        ("schema > /dev/full", 1, "error: stdout can't be written: No space left on device"),
        ("validate missing.yaml --json 2>&- > /dev/full", 1, ""),
        ("init topology.yaml <&-", 0, ""),
    ],
)
def test_the_exit_code_is_that_of_the_work_whatever_becomes_of_the_output(
    command: str, code: int, err: str, tmp_path: Path
) -> None:
    script = f"set -o pipefail; '{sys.executable}' -m planner {command}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment({}),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr.partition(" — ")[0]) == (code, err)


def test_the_rights_on_kubernetes_are_one_list_in_json(tmp_path: Path) -> None:
    launch = {"launcher": "kubernetes", "master": "k8s://https://127.0.0.1:443", "options": {"image": "repl"}}
    path = str(without_answer(tmp_path, jobs={"dc2": launch}))

    as_json, as_yaml = (
        CliRunner().invoke(app.root, ["jobs", "manifest", path, *more]) for more in (["--json"], [])
    )

    document = json.loads(as_json.stdout)
    assert (document["format_version"], document["apiVersion"], document["kind"]) == (1, "v1", "List")
    assert document["items"] == list(yaml.safe_load_all(as_yaml.stdout))
