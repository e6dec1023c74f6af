"""Steps of features/planning and applying: the real command, and the clusters as clients see them."""

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
from tests.records import admin_of
from tests.topologies import Topology, at

pytestmark = pytest.mark.integration

scenarios("planning", *(f"applying/{name}.feature" for name in ("ci", "finish", "guards")))

ENV = {"LOGNAME": "bdd", "USER": "bdd"}
REPORTS = ("c.md", "p.html", "plan.bin")


@dataclass
class Shop:
    """A topology on shared clusters. Names are short in the text and fresh ones at the clusters."""

    lab: Lab
    folder: Path
    fresh: Callable[[str], str]
    topology: Topology
    names: dict[str, str] = field(default_factory=dict)
    own: list[str] = field(default_factory=list)
    done: CompletedProcess[str] | None = None
    opened: ExitStack = field(default_factory=ExitStack)

    def name(self, word: str) -> str:
        return self.names.setdefault(word, self.fresh(word))

    def run(self, *arguments: str) -> None:
        self.done = repl(*arguments, env=ENV)

    def command(self, command: str, *options: str) -> None:
        """Runs a command over the topology as it is now."""
        self.run(command, str(self.topology.write()), *options)

    def succeeds(self) -> None:
        assert self.last().returncode == 0, self.last().stderr

    def engineer(self, command: str) -> None:
        self.command(*command.split())

    def last(self) -> CompletedProcess[str]:
        done = self.done
        assert done is not None
        return CompletedProcess(done.args, done.returncode, self.said(done.stdout), self.said(done.stderr))

    def said(self, text: str) -> str:
        """The output in the words of the scenario."""
        for word, name in self.names.items():
            text = text.replace(name, word)
        return text

    def file(self, name: str) -> str:
        return str(self.folder / name)

    def admin(self, cluster: str) -> AdminClient:
        return admin_of(self.lab.clusters[cluster].client)

    def named(self, topic: str) -> str:
        return self.name(topic)


@pytest.fixture
def shop(lab: Lab, fresh: Callable[[str], str], tmp_path: Path) -> Iterator[Shop]:
    made = Shop(lab, tmp_path, fresh, at(lab, fresh("shop"), tmp_path, ("dc1", "dc2")))
    made.topology.topic(made.name("stays"), partitions=1)  # a topology that declares nothing is an error
    made.command("apply", "--auto-approve")
    made.succeeds()
    with made.opened:
        yield made


@pytest.fixture
def drill(shop: Shop) -> Shop:
    """What the steps of `repl drill` act on."""
    return shop


# Given


@given("the topology was applied with the topic orders at dc1")
def _(shop: Shop) -> None:
    shop.topology.topic(shop.name("orders"), partitions=3, config={"retention.ms": "7d"})
    shop.command("apply", "--auto-approve")
    shop.succeeds()


@given(parsers.parse("a topology with the topic {word} of {count:d} partitions at dc1"))
@when(parsers.parse("the team declares {word} at dc1 with {count:d} partitions"))
def _(shop: Shop, word: str, count: int) -> None:
    shop.topology.topic(shop.name(word), partitions=count)


@given(parsers.parse('{word} is declared with "{text}"'))
def _(shop: Shop, word: str, text: str) -> None:
    kept = next(one for one in shop.topology.topics if one["name"] == shop.name(word))
    shop.topology.topic(**{**kept, **yaml.safe_load("{" + text + "}")})


@given(parsers.parse("a topology with {count:d} topics of its own that are deleted when they are removed"))
def _(shop: Shop, count: int) -> None:
    shop.own = [shop.fresh("own") for _ in range(count)]
    for name in shop.own:
        shop.topology.topic(name, partitions=1, on_remove="delete")


@given(parsers.parse("the policy {policy} is {value:d}"))
def _(shop: Shop, policy: str, value: int) -> None:
    shop.topology.more["policies"] = {policy: value}


@given("the topology was applied")
def _(shop: Shop) -> None:
    shop.command("apply", "--auto-approve")
    shop.succeeds()


@given("another engineer is applying to dc1")
def _(shop: Shop) -> None:
    place = endpoint(shop.lab, "dc1")
    run_at(place, lambda client: internal_topics.ensure(client, [LEASE], InternalSpec()))
    holder = LeaseHolder(shop.fresh("lease"), "ada", "ops1", 7, "another", "a plan")

    async def write(client: ClusterClient, verb: LeaseVerb) -> None:
        log = LogWriter(client)
        await log.append(LEASE, [(b"lease", encode_lease(verb, holder, 600_000))])
        log.close()

    run_at(place, partial(write, verb=LeaseVerb.CLAIM))
    shop.opened.callback(run_at, place, partial(write, verb=LeaseVerb.RELEASE))


# When


@when("dc1 is pinned to the id another-cluster")
def _(shop: Shop) -> None:
    shop.topology.clusters["dc1"]["id"] = "another-cluster"


@when("the topology is planned")
def _(shop: Shop) -> None:
    shop.command("plan")


@when("repl drift is run")
def _(shop: Shop) -> None:
    shop.command("drift")


@when("the pipeline plans with --detailed-exitcode, --markdown, --html, --out and --json")
def _(shop: Shop) -> None:
    options = zip(("--markdown", "--html", "--out"), map(shop.file, REPORTS), strict=True)
    shop.command("plan", "--detailed-exitcode", "--json", *(word for option in options for word in option))


@when(parsers.re(r"the pipeline plans with (?P<options>[^,]+)"))
def _(shop: Shop, options: str) -> None:
    """Files are in the folder of the scenario."""
    shop.command("plan", *(shop.file(word) if word.endswith(".bin") else word for word in options.split()))


@when(parsers.parse("the pipeline plans a rollback of the last apply with --out {file}"))
def _(shop: Shop, file: str) -> None:
    applies = history(HistoryRequest(shop.topology.file)).applies
    last = [one.id for one in applies if one.topology == shop.topology.name][-1]
    shop.command("plan", "--rollback", last, "--out", shop.file(file))
    shop.succeeds()


@when(parsers.re(r"the pipeline applies (?P<file>\w+\.bin)"))
def _(shop: Shop, file: str) -> None:
    shop.run("apply", shop.file(file))


@when("the pipeline applies the topology without --auto-approve")
def _(shop: Shop) -> None:
    shop.command("apply")


@when("the topology is applied")
@when("the pipeline applies the topology with --auto-approve")
def _(shop: Shop) -> None:
    shop.command("apply", "--auto-approve")


@when("the pipeline applies the topology with --auto-approve and --lock-timeout 1s")
def _(shop: Shop) -> None:
    shop.command("apply", "--auto-approve", "--lock-timeout", "1s")


@when("an apply is killed after its first step")
def _(shop: Shop) -> None:
    process = begin("apply", str(shop.topology.write()), "--auto-approve", "--json", env=ENV)
    assert process.stdout is not None
    first = process.stdout.readline()
    process.kill()
    process.communicate()
    assert json.loads(first)["event"] == "step"


@when(parsers.re(r"(?P<what>orders is|all topics of its own are) removed from the topology"))
def _(shop: Shop, what: str) -> None:
    names = shop.own if what.startswith("all") else [shop.name("orders")]
    shop.topology.topics = [one for one in shop.topology.topics if one["name"] not in names]


# Then


@then(parsers.parse('the comment begins with "{words}"'))
def _(shop: Shop, words: str) -> None:
    assert (shop.folder / "c.md").read_text().splitlines()[0].endswith(words)


@then("the page shows the change of payments")
def _(shop: Shop) -> None:
    assert f"topic.dc1.{shop.name('payments')}" in (shop.folder / "p.html").read_text()


@then("the JSON creates payments")
def _(shop: Shop) -> None:
    changes = json.loads(shop.last().stdout)["resource_changes"]
    actions = {one["address"]: one["change"]["actions"] for one in changes}
    assert actions["topic.dc1.payments"] == ["create"]
    assert actions["topic.dc1.orders"] == ["no-op"]


@then("the saved plan shows the same again")
def _(shop: Shop) -> None:
    planned = json.loads(shop.last().stdout)
    shop.run("show", "--json", shop.file("plan.bin"))
    assert json.loads(shop.last().stdout) == {**planned, "signature": "not signed"}


@then("all topics of its own exist at dc1")
def _(shop: Shop) -> None:
    admin = AdminClient(shop.lab.clusters["dc1"].client)
    assert set(shop.own) <= set(admin.list_topics(timeout=60).topics)
