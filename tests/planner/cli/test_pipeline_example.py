"""The pipelines in plans/pipelines: what they run is run here as it stands, against real clusters."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner.model.diagnostic import ExitCode
from runtime.lab.lab import Lab
from tests.topologies import at

HERE = Path(__file__).parents[3]
PIPELINES = HERE / "plans" / "pipelines"
FILE = PIPELINES / "github-actions.yaml"
MARKER = "<!-- repl plan -->"
ALLOWED: dict[str, Any] = {
    "REPL_ALLOW_ENV": "REPL_USER,REPL_PASSWORD",
    "REPL_ALLOW_FILES": "/etc/repl",
    "REPL_ALLOW_BOOTSTRAP": "127.0.0.1,localhost",
}
BASH = shutil.which("bash") or "bash"


@pytest.fixture(scope="module")
def pipeline() -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(FILE.read_text())
    return found


def of_step(pipeline: dict[Any, Any], job: str, step: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in pipeline["jobs"][job]["steps"] if one.get("id") == step)
    return found


def test_no_host_of_jobs_plans_a_pull_request(pipeline: dict[Any, Any]):
    """GitHub gives a job to each runner that has all of its labels, whatever more the runner has."""
    labels = {name: set(job["runs-on"]) for name, job in pipeline["jobs"].items()}
    for job in ("plan", "drift"):
        assert not labels[job] <= labels["apply"]
        assert not labels["apply"] <= labels[job]


def test_what_a_pull_request_wrote_gets_no_power(pipeline: dict[Any, Any]):
    triggers = pipeline[True]  # YAML 1.1 reads the key `on` so
    assert "pull_request" in triggers
    assert "pull_request_target" not in triggers
    plan = pipeline["jobs"]["plan"]
    assert ALLOWED.keys() <= plan["env"].keys()
    assert "repl plan topology/ --untrusted " in of_step(pipeline, "plan", "plan")["run"]
    for job in pipeline["jobs"].values():
        for step in job["steps"]:
            assert "${{ github.event" not in step.get("run", "")
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


def test_what_is_applied_is_what_the_plan_job_printed_once_it_is_approved(pipeline: dict[Any, Any]):
    plan, apply = pipeline["jobs"]["plan"], pipeline["jobs"]["apply"]
    step = of_step(pipeline, "apply", "apply")
    assert plan["outputs"] == {
        name: f"${{{{ steps.plan.outputs.{name} }}}}" for name in ("changes", "digest")
    }
    assert step["env"] == {"DIGEST": "${{ needs.plan.outputs.digest }}"}
    assert '--expect "$DIGEST"' in step["run"]
    assert (apply["needs"], apply["environment"]) == ("plan", "production")
    assert apply["if"] == "github.event_name == 'push' && needs.plan.outputs.changes == 'true'"
    assert plan["env"]["REPL_PASSWORD"] != apply["env"]["REPL_PASSWORD"]  # they come as different principals


def test_each_night_looks_for_drift_and_runs_a_drill_without_rights_whose_key_signs_no_plan(pipeline):
    assert len(pipeline[True]["schedule"]) == 1
    assert pipeline["jobs"]["plan"]["if"] == "github.event_name != 'schedule'"
    for job in ("drift", "drill"):
        assert pipeline["jobs"][job]["if"] == "github.event_name == 'schedule'"
        assert of_step(pipeline, job, job)["run"].startswith(f"repl {job} topology/")
    drill = pipeline["jobs"]["drill"]
    assert set(drill["env"]) == {"REPL_PLAN_KEY"}
    assert drill["env"]["REPL_PLAN_KEY"] not in str([pipeline["jobs"][job] for job in ("plan", "apply")])


@dataclass(frozen=True)
class Machine:
    """Runs the pipeline's scripts as they stand: `repl` is this one, forges keep comments in a file."""

    folder: Path
    pipeline: dict[Any, Any]

    @property
    def comments(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads((self.folder / "comments").read_text())
        return found

    def run(self, job: str, step: str, ends: int = ExitCode.DONE, **more: Any) -> str:
        return self.script(of_step(self.pipeline, job, step)["run"], ends, **more)

    def script(self, text: str, ends: int = ExitCode.DONE, **more: Any) -> str:
        output = self.folder / "output"
        output.write_text("")
        env = {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(HERE),
            "GITHUB_OUTPUT": str(output),
            "PULL_REQUEST": "7",
            "GH_REPO": "shop/kafka",
            "RUN_URL": "https://github.com/shop/kafka/actions/runs/1",
            **more,
        }
        command = [BASH, "-e", "-c", text]
        done = subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == ends, done.stdout + done.stderr
        return output.read_text()


@pytest.fixture
def machine(pipeline: dict[Any, Any], tmp_path: Path) -> Machine:
    (tmp_path / "topology").mkdir()
    (tmp_path / "bin").mkdir()
    _command(tmp_path / "bin" / "repl", f'exec "{sys.executable}" -m planner "$@"')
    (tmp_path / "comments").write_text(json.dumps([{"id": 1, "body": f"{MARKER} mine", "by": "User"}]))
    for forge in ("gh", "curl"):
        program = Path(__file__).with_name("forge.py")
        _command(tmp_path / "bin" / forge, f'exec "{sys.executable}" "{program}" {forge} "$@"')
    return Machine(tmp_path, pipeline)


@pytest.mark.slow
def test_the_pull_request_is_told_why_there_is_no_plan(machine: Machine, pipeline: dict[Any, Any]):
    (machine.folder / "topology" / "t.yaml").write_text("apiVersion: repl/v1\nname: shop\ntopcs: []\n")

    machine.run("plan", "validate", ends=ExitCode.ERROR)
    assert machine.run("plan", "plan", ends=ExitCode.ERROR, **dict.fromkeys(ALLOWED, "")) == ""
    machine.run("plan", "comment")

    assert "No plan could be made" in machine.comments[1]["body"]
    assert "No plan could be made" in (machine.folder / "plan.md").read_text()
    # What GitHub itself decides: a step after one that failed is left out unless its condition says always().
    for step, before in (("plan", "validate"), ("comment", "plan")):
        condition = of_step(pipeline, "plan", step)["if"]
        assert condition.startswith(f"always() && steps.{before}.outcome != 'skipped'")


OUTPUTS = ("plan.md", "plan.html", "plan.repl", "plan.err", "plan.env", "comment.md", "note.md")


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["github", "gitlab", "atlantis"])
def test_no_file_of_a_pull_request_is_taken_for_an_output(
    platform: str, machine: Machine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A link in its place would take a text of the author to a file of the runner, or upload that file."""
    profile = tmp_path_factory.mktemp("home") / ".profile"
    profile.write_text("mine\n")
    for name in OUTPUTS:
        (machine.folder / name).symlink_to(profile)
    (machine.folder / "topology" / "t.yaml").write_text('apiVersion: repl/v1\nname: shop\n"$(id)": []\n')
    allowed = dict.fromkeys(ALLOWED, "")
    match platform:
        case "github":
            machine.run("plan", "plan", ends=ExitCode.ERROR, **allowed)
            machine.run("plan", "comment")
            assert "No plan could be made" in machine.comments[-1]["body"]
        case "gitlab":
            plan = gitlab()["plan"]
            machine.script("\n".join(plan["script"]), ExitCode.ERROR, **allowed, **plan["variables"])
            machine.script(plan["after_script"][0], CI_MERGE_REQUEST_IID="7")
            assert len(machine.comments) == 1
        case "atlantis":
            steps = yaml.safe_load((PIPELINES / "atlantis-repos.yaml").read_text())["workflows"]["repl"]
            forged = machine.folder / "forged.plan"
            forged.write_text("{}")
            script = "\n".join(one["run"] for one in steps["plan"]["steps"])
            machine.script(f"cd topology\n{script}", ExitCode.ERROR, **allowed, PLANFILE=str(forged))
            assert not forged.exists()
    assert profile.read_text() == "mine\n"
    uploaded = () if platform == "atlantis" else ("plan.md", "plan.html", "plan.repl")
    assert not any((machine.folder / name).is_symlink() for name in uploaded)


@pytest.mark.integration
def test_its_steps_do_what_they_say(machine: Machine, lab: Lab, fresh):
    made = at(lab, fresh("piped"), machine.folder / "topology")
    made.topic(fresh("orders"), partitions=2)
    made.write()

    machine.run("plan", "validate")
    changes, digest = machine.run("plan", "plan", **ALLOWED).splitlines()
    assert changes == "changes=true"
    assert re.fullmatch(r"digest=sha256:[0-9a-f]{64}", digest)
    machine.run("plan", "comment")
    assert "1 to add" in machine.comments[1]["body"]
    assert "1 to add" in (machine.folder / "plan.md").read_text()
    assert json.loads((machine.folder / "plan.repl").read_text())
    machine.run("apply", "apply", DIGEST=digest.removeprefix("digest="))
    assert machine.run("plan", "plan", **ALLOWED) == "changes=false\n"
    machine.run("drift", "drift")


@pytest.mark.parametrize("job", ["github", "gitlab"])
def test_the_earlier_comment_is_changed_in_place(machine: Machine, job: str):
    """A comment of another author stays as it is, also with the marker."""
    script = of_step(machine.pipeline, "plan", "comment")["run"]
    env: dict[str, Any] = {}
    if job == "gitlab":
        script = gitlab()["plan"]["after_script"][0]
        env = {"CI_MERGE_REQUEST_IID": "7", "CI_API_V4_URL": "https://git/api/v4", "CI_PROJECT_ID": "3"}
        env |= {"CI_JOB_URL": "https://git/job/1", "REPL_TOKEN": "t"}
        (machine.folder / "comments").write_text("[]")
    before = len(machine.comments)
    for text in ("first", "second"):
        (machine.folder / "plan.md").write_text(f"### {text} @ `x`\n")
        machine.script(script, **env)
        *others, ours = machine.comments
        assert len(others) == before
        assert ours["body"].startswith(f"{MARKER}\n### {text} @ `x`\n")
        assert "[The whole plan](https://" in ours["body"]
    assert [one["body"] for one in others] == [f"{MARKER} mine"] * before


def gitlab(**inputs: str) -> dict[str, Any]:
    """The component with its inputs, as GitLab replaces them."""
    text = (PIPELINES / "gitlab-component.yaml").read_text()
    spec = next(yaml.safe_load_all(text))["spec"]["inputs"]
    given = (
        {name: one.get("default") for name, one in spec.items()}
        | {"plan_tag": "p", "apply_tag": "a"}
        | inputs
    )
    for name, value in given.items():
        text = text.replace(f"$[[ inputs.{name} ]]", value)
    assert "$[[" not in text
    _, found = yaml.safe_load_all(text)
    return dict(found)


def test_the_action_runs_what_the_workflow_runs(pipeline: dict[Any, Any]):
    action = yaml.safe_load((PIPELINES / "action.yaml").read_text())
    steps = {one["id"]: one for one in action["runs"]["steps"] if "id" in one}
    for step in ("validate", "plan", "comment"):
        written = of_step(pipeline, "plan", step)["run"].replace("topology/", '"$TOPOLOGY"')
        assert steps[step]["run"] == written
        assert steps[step]["shell"] == "bash"
    assert steps["plan"]["env"]["REPL_POLICY"] == "${{ inputs.policy }}"
    assert {one["value"] for one in action["outputs"].values()} == {
        "${{ steps.plan.outputs.changes }}",
        "${{ steps.plan.outputs.digest }}",
    }


@pytest.mark.integration
def test_a_merge_request_is_planned_and_applied_by_the_component_and_by_atlantis(machine, lab, fresh) -> None:
    made = at(lab, fresh("merged"), machine.folder / "topology")
    made.topic(fresh("orders"), partitions=2)
    made.write()
    jobs = gitlab()
    allowed = {**ALLOWED, **jobs["plan"]["variables"]}
    machine.script("\n".join(jobs["plan"]["script"]), **allowed)
    named = (machine.folder / "plan.env").read_text()
    assert re.fullmatch(r"REPL_DIGEST=sha256:[0-9a-f]{64}\n", named)
    machine.script(jobs["apply"]["script"][0], REPL_DIGEST=named.strip().partition("=")[2])

    atlantis = yaml.safe_load((PIPELINES / "atlantis-repos.yaml").read_text())["workflows"]["repl"]
    made.topic(fresh("payments"), partitions=2)
    made.write()
    for phase in ("plan", "apply", "apply"):  # a plan that was applied does nothing the second time
        script = "\n".join(one["run"] for one in atlantis[phase]["steps"])
        machine.script(f"cd topology\n{script}", **allowed, PLANFILE=str(machine.folder / "atlantis.plan"))
    assert machine.run("plan", "plan", **allowed) == "changes=false\n"


def _command(path: Path, does: str) -> None:
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(0o755)
