"""A flow from files through the commands: planned, applied, seen in status, paused, resumed and destroyed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.lab.lab import Lab
from tests.bdd.running import eventually
from tests.commands import repl
from tests.labs import spec
from tests.records import coordinators_ready, read

pytestmark = [pytest.mark.spark, pytest.mark.long]

TOPOLOGY = """\
apiVersion: repl/v1
name: town
clusters:
  dc1: {{bootstrap: "{bootstrap}"}}
defaults: {{topic: {{partitions: 2}}}}
flows:
  - {{name: lines-in, from: {{file: ./inbox, format: text}}, to: dc1, topics: {{to: inbox}}}}
jobs:
  lines-in: {{slots: 1, memory: 512m, metrics: off}}
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path / "lab")
    try:
        made.up([spec("dc1")])
        coordinators_ready(made.clusters["dc1"].client)
        yield made
    finally:
        made.down(purge=True)


def test_lines_of_a_folder_beside_the_topology_arrive_in_a_topic(lab: Lab, tmp_path: Path) -> None:
    client = dict(lab.clusters["dc1"].client)
    file, inbox = tmp_path / "town.yaml", tmp_path / "inbox"
    file.write_text(TOPOLOGY.format(bootstrap=client["bootstrap.servers"]))
    inbox.mkdir()
    (inbox / "app.log").write_text("one\ntwo\n")

    def run(*words: str) -> str:
        done = repl(*words, env={"REPL_HOME": str(tmp_path / "home")}, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def flow() -> dict[str, Any]:
        (found,) = json.loads(run("status", str(file), "--json", "--over", "0s"))["flows"]
        return dict(found)

    try:
        planned = run("plan", str(file))
        assert f"lines of text in {inbox} into inbox, looked at every 1s" in planned
        assert "topic.dc1.inbox will be created" in planned
        run("apply", str(file), "--auto-approve")
        eventually(lambda: sorted(values(client)) == [b"one", b"two"])
        eventually(lambda: flow()["state"] == "caught_up")
        seen = flow()
        assert (seen["source"], seen["destination"], seen["lag_records"]) == ("lines-in", "dc1", 0)
        assert [one["topic"] for one in seen["topics"]] == ["app.log"]
        assert "No changes" in run("plan", str(file))

        run("pause", "lines-in", str(file), "--auto-approve")
        with (inbox / "app.log").open("a") as log:
            log.write("three\n")
        assert flow()["state"] == "paused"
        assert sorted(values(client)) == [b"one", b"two"]
        run("resume", "lines-in", str(file), "--auto-approve")
        eventually(lambda: sorted(values(client)) == [b"one", b"three", b"two"])
    finally:
        run("destroy", str(file), "--auto-approve")


def values(client: dict[str, Any]) -> list[bytes]:
    return [record.value or b"" for record in read(client, "inbox")]
