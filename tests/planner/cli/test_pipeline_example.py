"""The pipeline in plans/pipelines: what it runs is run here as it stands, against real clusters."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from runtime.lab.lab import Lab
from tests.topologies import at

HERE = Path(__file__).parents[3]
FILE = HERE / "plans" / "pipelines" / "github-actions.yaml"
BASH = shutil.which("bash") or "bash"


@pytest.fixture(scope="module")
def pipeline() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return found


def script(pipeline: dict[str, Any], job: str, step: str) -> str:
    found: str = next(one["run"] for one in pipeline["jobs"][job]["steps"] if one.get("id") == step)
    return found


def test_applying_waits_for_a_plan_with_changes_and_for_an_approval(pipeline: dict[str, Any]):
    apply = pipeline["jobs"]["apply"]
    assert apply["needs"] == "plan"
    assert apply["environment"] == "production"
    assert "outputs.changes == 'true'" in apply["if"]
    assert pipeline["jobs"]["plan"]["outputs"]["changes"] == "${{ steps.plan.outputs.changes }}"


def test_planning_and_applying_come_as_different_principals(pipeline: dict[str, Any]):
    plan, apply = (pipeline["jobs"][job]["env"]["REPL_PASSWORD"] for job in ("plan", "apply"))
    assert plan != apply


@pytest.mark.integration
def test_its_steps_do_what_they_say(pipeline: dict[str, Any], lab: Lab, fresh, tmp_path: Path):
    folder = tmp_path / "topology"
    folder.mkdir()
    made = at(lab, fresh("piped"), folder)
    made.topic(fresh("orders"), partitions=2)
    made.write()
    commands = tmp_path / "bin"
    commands.mkdir()
    _command(commands / "repl", f'exec "{sys.executable}" -m planner "$@"')
    _command(commands / "gh", f'printf "%s\\n" "$@" > "{tmp_path}/said"')

    def run(job: str, step: str) -> str:
        output = tmp_path / "output"
        output.write_text("")
        env = {
            **os.environ,
            "PATH": f"{commands}:{os.environ['PATH']}",
            "PYTHONPATH": str(HERE),
            "GITHUB_OUTPUT": str(output),
            "PULL_REQUEST": "7",
        }
        command = [BASH, "-e", "-c", script(pipeline, job, step)]
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return output.read_text()

    run("plan", "validate")
    assert run("plan", "plan") == "changes=true\n"
    run("plan", "comment")
    assert "7\n--body-file\nplan.md" in (tmp_path / "said").read_text()
    assert "1 to add" in (tmp_path / "plan.md").read_text()
    assert json.loads((tmp_path / "plan.repl").read_text())
    run("apply", "apply")
    assert run("plan", "plan") == "changes=false\n"


def _command(path: Path, does: str) -> None:
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(0o755)
