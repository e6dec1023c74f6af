"""Steps of features/applying: the real command, and the cluster as its own clients see it."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml
from confluent_kafka.admin import AdminClient
from pytest_bdd import given, parsers, scenarios, then, when

from planner.drill.operator import TopicOperator
from planner.kafka import ClusterClient, run_at
from planner.kafka.log import LogWriter
from planner.state import internal_topics
from planner.state.lease import LeaseHolder, LeaseVerb, encode_lease
from planner.workflows import HistoryRequest, history
from runtime.contract.spec.naming import LEASE
from runtime.contract.spec.topic_settings import InternalSpec
from runtime.lab.lab import Lab
from tests.commands import begin, repl
from tests.endpoints import endpoint
from tests.topologies import Topology, at

pytestmark = pytest.mark.integration

scenarios(*(f"applying/{name}.feature" for name in ("ci", "finish", "guards")))

ENV = {"LOGNAME": "bdd", "USER": "bdd"}


@dataclass
class Story:
    """What a scenario has to remember. Topics have short names in the text and fresh ones at the cluster."""

    lab: Lab
    folder: Path
    fresh: Callable[[str], str]
    topology: Topology
    names: dict[str, str] = field(default_factory=dict)
    own: list[str] = field(default_factory=list)
    other: Topology | None = None
    done: CompletedProcess[str] | None = None
    open: ExitStack = field(default_factory=ExitStack)

    def name(self, word: str) -> str:
        return self.names.setdefault(word, self.fresh(word))

    def run(self, *arguments: str) -> None:
        self.done = repl(*arguments, env=ENV)

    def engineer(self, command: str) -> None:
        self.run(*command.split(), str(self.topology.file))

    def last(self) -> CompletedProcess[str]:
        assert self.done is not None
        return self.done

    def plan_file(self, name: str) -> str:
        return str(self.folder / name)

    def options(self, text: str) -> list[str]:
        """Options as the scenario writes them; files are in its folder."""
        return [self.plan_file(word) if word.endswith(".bin") else word for word in text.split()]

    @property
    def operator(self) -> TopicOperator:
        return TopicOperator(lambda cluster: self.lab.clusters[cluster].client, self.name)

    def topics(self) -> set[str]:
        admin = AdminClient(self.lab.clusters["dc1"].client)
        return set(admin.list_topics(timeout=60).topics)


@pytest.fixture
def story(lab: Lab, fresh: Callable[[str], str], tmp_path: Path) -> Iterator[Story]:
    made = Story(lab, tmp_path, fresh, at(lab, fresh("shop"), tmp_path))
    with made.open:
        yield made


@pytest.fixture
def drill(story: Story) -> Story:
    """What the steps of `repl drill` act on."""
    return story


# Given


@given(parsers.parse("a topology with the topic {word} of {count:d} partitions at dc1"))
def _(story: Story, word: str, count: int) -> None:
    story.topology.topic(story.name(word), partitions=count)
    story.topology.write()


@given(parsers.parse('{word} is declared with "{text}"'))
def _(story: Story, word: str, text: str) -> None:
    declared = yaml.safe_load("{" + text + "}")
    kept = next(one for one in story.topology.topics if one["name"] == story.name(word))
    story.topology.topic(**{**kept, **declared})
    story.topology.write()


@given(parsers.parse("a topology with {count:d} topics of its own that are deleted when they are removed"))
def _(story: Story, count: int) -> None:
    story.own = [story.fresh("own") for _ in range(count)]
    for name in story.own:
        story.topology.topic(name, partitions=1, on_remove="delete")
    story.topology.write()


@given(parsers.parse("the policy {policy} is {value:d}"))
def _(story: Story, policy: str, value: int) -> None:
    story.topology.more["policies"] = {policy: value}
    story.topology.write()


@given("the topology was applied")
def _(story: Story) -> None:
    story.run("apply", str(story.topology.file), "--auto-approve")
    assert story.last().returncode == 0, story.last().stderr


@given("another engineer is applying to dc1")
def _(story: Story) -> None:
    place = endpoint(story.lab, "dc1")
    run_at(place, lambda client: internal_topics.ensure(client, [LEASE], InternalSpec()))
    holder = LeaseHolder(story.fresh("lease"), "ada", "ops1", 7, "another", "a plan")

    async def write(client: ClusterClient, verb: LeaseVerb) -> None:
        log = LogWriter(client)
        await log.append(LEASE, [(b"lease", encode_lease(verb, holder, 600_000))], 30)
        log.close()

    run_at(place, partial(write, verb=LeaseVerb.CLAIM))
    story.open.callback(run_at, place, partial(write, verb=LeaseVerb.RELEASE))


# When


@when(parsers.parse("the pipeline plans with {options}"))
def _(story: Story, options: str) -> None:
    story.run("plan", str(story.topology.file), *story.options(options))


@when(parsers.parse("the pipeline plans a rollback of the last apply with {options}"))
def _(story: Story, options: str) -> None:
    applies = history(HistoryRequest(story.topology.file)).applies
    last = [one.id for one in applies if one.topology == story.topology.name][-1]
    story.run("plan", str(story.topology.file), "--rollback", last, *story.options(options))
    assert story.last().returncode == 0, story.last().stderr


@when(parsers.re(r"the pipeline applies (?P<file>\w+\.bin)"))
def _(story: Story, file: str) -> None:
    story.run("apply", story.plan_file(file))


@when("the pipeline applies the topology without --auto-approve")
def _(story: Story) -> None:
    story.run("apply", str(story.topology.file))


@when(parsers.parse("the pipeline applies the topology with --auto-approve"))
def _(story: Story) -> None:
    story.run("apply", str(story.topology.file), "--auto-approve")


@when(parsers.parse("the pipeline applies the topology with --auto-approve and {options}"))
def _(story: Story, options: str) -> None:
    story.run("apply", str(story.topology.file), "--auto-approve", *options.split())


@when("an apply is killed after its first step")
def _(story: Story) -> None:
    process = begin("apply", str(story.topology.file), "--auto-approve", "--json", env=ENV)
    assert process.stdout is not None
    first = process.stdout.readline()
    process.kill()
    process.communicate()
    assert json.loads(first)["event"] == "step"


@when(parsers.parse("{word} is removed from the topology"))
def _(story: Story, word: str) -> None:
    leave(story, {story.name(word)})


@when("all topics of its own are removed from the topology")
def _(story: Story) -> None:
    leave(story, set(story.own))


def leave(story: Story, names: set[str]) -> None:
    """A topology that declares nothing is an input error, so one topic stays."""
    story.topology.topics = [one for one in story.topology.topics if one["name"] not in names]
    story.topology.topic(story.name("stays"), partitions=1)
    story.topology.write()


# Then


@then("all topics of its own exist at dc1")
def _(story: Story) -> None:
    assert set(story.own) <= story.topics()
