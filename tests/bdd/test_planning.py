"""Steps of features/planning: `repl plan`, `repl show` and `repl drift` against real brokers."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from pytest_bdd import given, parsers, scenarios, then, when

from planner.cli.app import run
from planner.drill.operator import TopicOperator
from runtime.lab.lab import Lab
from tests.topologies import Topology, at

pytestmark = pytest.mark.integration

scenarios("planning")

REPORTS = ["--detailed-exitcode", "--markdown", "c.md", "--html", "p.html", "--out", "saved", "--json"]


@dataclass
class Story:
    """What a scenario has to remember. Topics have names of their own; people read the short ones."""

    lab: Lab
    folder: Path
    topology: Topology
    other: Topology
    fresh: Callable[[str], str]
    capture: pytest.CaptureFixture[str]
    names: dict[str, str] = field(default_factory=dict)
    code: int = 0
    out: str = ""
    err: str = ""

    def last(self) -> CompletedProcess[str]:
        return CompletedProcess("repl", self.code, self.short(self.out), self.short(self.err))

    def full(self, name: str) -> str:
        return self.names.setdefault(name, self.fresh(name))

    def repl(self, *arguments: str) -> None:
        self.capture.readouterr()
        self.code = run(arguments)
        self.out, self.err = self.capture.readouterr()

    def short(self, text: str) -> str:
        """The output with the names that the scenario uses."""
        for name, full in self.names.items():
            text = text.replace(full, name)
        return text

    @property
    def operator(self) -> TopicOperator:
        return TopicOperator(lambda cluster: self.lab.clusters[cluster].client, self.full)


@pytest.fixture
def story(
    lab: Lab,
    fresh: Callable[[str], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Story:
    monkeypatch.chdir(tmp_path)
    both = ("dc1", "dc2")
    topology, other = (at(lab, fresh(name), tmp_path, both) for name in ("shop", "billing"))
    return Story(lab, tmp_path, topology, other, fresh, capsys)


@pytest.fixture
def drill(story: Story) -> Story:
    """What the steps of `repl drill` act on."""
    return story


@given("the topology was applied with the topic orders at dc1")
def _(story: Story) -> None:
    story.topology.topic(story.full("orders"), partitions=3, config={"retention.ms": "7d"})
    story.repl("apply", "--auto-approve", str(story.topology.write()))
    assert story.code == 0, story.err


@when(parsers.re(r"the team declares (?P<name>\w+) at dc1 with (?P<count>\d+) partitions?"))
def _(story: Story, name: str, count: str) -> None:
    story.topology.topic(story.full(name), partitions=int(count), **_kept(story, name))


def _kept(story: Story, name: str) -> dict[str, Any]:
    """What stood there besides the partitions."""
    there = [one for one in story.topology.topics if one["name"] == story.full(name)]
    return {"config": there[0]["config"]} if there and "config" in there[0] else {}


@when("the team declares a topic at dc3, where nothing answers")
def _(story: Story) -> None:
    story.topology.clusters["dc3"] = {"bootstrap": "127.0.0.1:1"}
    story.topology.topic(story.full("far"), "dc3")


@when("dc1 is pinned to the id another-cluster")
def _(story: Story) -> None:
    story.topology.clusters["dc1"]["id"] = "another-cluster"


@when("the topology is planned")
def _(story: Story) -> None:
    story.repl("plan", str(story.topology.write()))


@when("repl drift is run")
def _(story: Story) -> None:
    story.repl("drift", str(story.topology.write()))


@when("the pipeline plans with --detailed-exitcode, --markdown, --html, --out and --json")
def _(story: Story) -> None:
    story.repl("plan", *REPORTS, str(story.topology.write()))


@then(parsers.parse('the comment begins with "{words}"'))
def _(story: Story, words: str) -> None:
    first = (story.folder / "c.md").read_text().splitlines()[0]
    assert first.endswith(words)


@then("the page shows the change of payments")
def _(story: Story) -> None:
    assert f"topic.dc1.{story.full('payments')}" in (story.folder / "p.html").read_text()


@then("the JSON creates payments")
def _(story: Story) -> None:
    actions = {one["address"]: one["change"]["actions"] for one in json.loads(story.out)["resource_changes"]}
    assert actions[f"topic.dc1.{story.full('payments')}"] == ["create"]
    assert actions[f"topic.dc1.{story.full('orders')}"] == ["no-op"]


@then("the saved plan shows the same again")
def _(story: Story) -> None:
    planned = json.loads(story.out)
    story.repl("show", "--json", "saved")
    assert json.loads(story.out) == {**planned, "signature": "not signed"}
