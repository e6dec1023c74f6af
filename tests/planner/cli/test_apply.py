"""repl apply as a person and a pipeline meet it: the question, the lines, the events, the refusals."""

import fcntl
import json
import os
import subprocess
import termios
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from planner.kafka import log, run_at
from planner.model.diagnostic import Failure
from planner.model.plan import Plan
from planner.state import planfile
from planner.workflows import ApplyRequest, apply
from runtime.contract.spec import naming
from tests.commands import repl
from tests.endpoints import endpoint
from tests.terminal import shown, start
from tests.topologies import Topology, at

pytestmark = pytest.mark.integration


@pytest.fixture
def topology(lab, fresh, tmp_path) -> Topology:
    made = at(lab, fresh("shop"), tmp_path)
    made.topic(f"{made.name}-orders", partitions=2)
    made.write()
    return made


def answering(answer: str, *arguments: str, **changed: str) -> tuple[int, str]:
    """The command at a terminal where a person types the answer."""
    process, terminal = start(*arguments, env=changed)
    os.write(terminal, f"{answer}\n".encode())
    told = b"".join(shown(terminal)).decode()
    return process.wait(timeout=120), told


@pytest.mark.parametrize("answer", ["no", "y", ""])
def test_only_yes_is_a_yes(topology, answer):
    code, told = answering(answer, "apply", str(topology.file))
    assert code == 1
    assert "Only 'yes' will be accepted" in told
    assert "not approved, so nothing was changed" in told


def test_events_for_programs_are_one_json_a_line(topology):
    done = repl("apply", str(topology.file), "--auto-approve", "--json")
    assert done.returncode == 0, done.stderr
    *steps, end = [json.loads(line) for line in done.stdout.splitlines()]
    address = f"topic.dc1.{topology.name}-orders"
    told = [(one["action"], one["address"], one["result"]) for one in steps]
    assert told == [("create", address, "done"), ("register", address, "done")]
    assert (end["event"], end["complete"], end["version"]) == ("finished", True, 1)
    assert end["resources"] == {"added": 1, "changed": 0, "destroyed": 0}
    told_again = repl("history", str(topology.file), "--id", end["id"])
    assert told_again.returncode == 0
    assert f"create {address}" in told_again.stdout


@pytest.mark.parametrize(("pinned", "code", "said"), [(True, 3, "is pinned to"), (False, 4, "was made for")])
def test_an_address_that_leads_elsewhere_since_the_plan_is_not_written_to(
    topology, lab, tmp_path, pinned, code, said
):
    if pinned:
        topology.clusters["dc1"]["id"] = lab.clusters["dc1"].cluster_id
    saved = tmp_path / "plan.bin"
    assert repl("plan", str(topology.write()), "--out", str(saved)).returncode == 0
    inputs = planfile.load(saved).plan().inputs
    moved = structs.replace(inputs.topology.clusters["dc1"], bootstrap=lab.clusters["dc2"].bootstrap)
    elsewhere = replace(inputs.topology, clusters={**inputs.topology.clusters, "dc1": moved})
    planfile.write(Plan(replace(inputs, topology=elsewhere)), saved)

    done = repl("apply", str(saved))

    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert pinned or "make the plan again: repl plan --out FILE" in done.stderr
    with pytest.raises(Failure, match=said) as refused:
        apply(ApplyRequest(topology.file, plan=planfile.load(saved).plan()))
    assert pinned or "make the plan again, and apply that one" in str(refused.value)
    claims = [
        one.value or b""
        for one in run_at(endpoint(lab, "dc2"), lambda client: log.read(client, naming.LEASE))
    ]
    assert not [one for one in claims if topology.name.encode() in one]


def test_the_commit_of_the_topology_is_remembered(topology, tmp_path):
    def git(*words: str) -> str:
        named = ["git", "-C", str(tmp_path), "-c", "user.name=ada", "-c", "user.email=ada@example.org"]
        return subprocess.run([*named, *words], check=True, capture_output=True, text=True).stdout.strip()

    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "topology")
    assert repl("apply", str(topology.file), "--auto-approve").returncode == 0
    told = json.loads(repl("history", str(topology.file), "--json").stdout)
    mine = [one for one in told["applies"] if one["topology"] == topology.name]
    assert [one["git_commit"] for one in mine] == [git("rev-parse", "HEAD")]


@pytest.fixture
def paused(lab, fresh, tmp_path) -> Topology:
    """A flow whose pause makes a plan of several steps; no job of it runs."""
    made = at(lab, fresh("shop"), tmp_path, ("dc1", "dc2"))
    made.topic(f"{made.name}-orders", partitions=1)
    include = {"include": f"{made.name}-orders"}
    made.more = {"flows": [{"name": made.name, "from": "dc1", "to": "dc2", "topics": include}]}
    made.write()
    return made


def asked(*arguments: str) -> tuple[subprocess.Popen[bytes], int]:
    """The command at a terminal of its own, once it asks."""
    own: dict[str, Any] = {
        "start_new_session": True,
        "preexec_fn": lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    }
    process, terminal = start(*arguments, **own)
    told = b""
    while b"Enter a value" not in told:
        told += os.read(terminal, 65_536)
    return process, terminal


def interrupt(process: subprocess.Popen[bytes], terminal: int) -> None:
    """Ctrl-C until it ends: Python notices one just before it waits for input only at the next key."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        os.write(terminal, b"\x03")
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
            return


@pytest.mark.parametrize("end", ["hang-up", "end of input", "Ctrl-C", "kill -9"])
def test_an_edit_is_not_in_the_file_while_the_question_waits(paused, end):
    before = paused.file.read_bytes()
    process, terminal = asked("pause", paused.name, "--path", str(paused.file))
    assert paused.file.read_bytes() == before

    match end:
        case "hang-up":
            os.close(terminal)
        case "end of input":
            os.write(terminal, b"\x04")
        case "Ctrl-C":
            interrupt(process, terminal)
        case _:
            process.kill()

    assert process.wait(timeout=60) != 0
    assert paused.file.read_bytes() == before
    assert [one.name for one in paused.file.parent.iterdir()] == [paused.file.name]


def test_an_edit_is_in_the_file_once_it_is_applied(paused):
    """The way of an edit that needs no job: a flow that never ran ends."""
    paused.more["flows"][0]["state"] = "paused"
    paused.write().chmod(0o640)
    wanted = paused.file.read_text().replace('"paused"', '"promoted"')

    code, told = answering("yes", "promote", paused.name, "--path", str(paused.file))

    assert (code, "Apply complete!" in told) == (0, True), told
    assert (paused.file.read_text(), paused.file.stat().st_mode & 0o777) == (wanted, 0o640)


def test_a_finished_saved_plan_does_nothing_the_second_time(topology, lab, tmp_path):
    saved = tmp_path / "plan.bin"
    topology.topic(f"{topology.name}-set", partitions=1, config={"retention.ms": "7d"})
    assert repl("plan", str(topology.write()), "--out", str(saved)).returncode == 0
    first = repl("apply", str(saved))
    assert first.returncode == 0, first.stderr

    again = repl("apply", str(saved))

    assert again.returncode == 0, again.stderr
    assert "all 4 steps of this plan were done by the apply" in again.stderr
    assert "Resources: 0 added, 0 changed, 0 destroyed." in again.stdout
    told = json.loads(repl("history", str(topology.file), "--json").stdout)
    assert len([one for one in told["applies"] if one["topology"] == topology.name]) == 1
