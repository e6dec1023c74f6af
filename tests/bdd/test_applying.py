"""Steps of features/planning, applying and quotas: the real command, and the clusters as clients see them."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

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
from tests.labs import run_tool
from tests.records import admin_of, create_topic, wait_for
from tests.topologies import Topology, at

pytestmark = pytest.mark.integration

scenarios("planning", "quotas", *(f"applying/{name}.feature" for name in ("ci", "finish", "guards")))

ENV = {"LOGNAME": "bdd", "USER": "bdd"}
REPORTS = ("c.md", "p.html", "plan.bin")
_LIMIT = re.compile(r"([a-z_]+)=([0-9.E-]+)")


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

    def quotas(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.topology.more.setdefault("quotas", [])
        return found

    def tool(self, cluster: str, word: str, *arguments: str) -> str:
        """Kafka's own tool on the limits of a user."""
        of_user = ("--entity-type", "users", "--entity-name", self.name(word))
        return run_tool(
            self.lab,
            cluster,
            "kafka.admin.ConfigCommand",
            "--command-config",
            "{client}",
            *of_user,
            *arguments,
        )

    def limits(self, cluster: str, word: str) -> dict[str, float]:
        return {key: float(value) for key, value in _LIMIT.findall(self.tool(cluster, word, "--describe"))}


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
        await log.append(LEASE, [(b"lease", encode_lease(verb, holder, 600_000))], 30)
        log.close()

    run_at(place, partial(write, verb=LeaseVerb.CLAIM))
    shop.opened.callback(run_at, place, partial(write, verb=LeaseVerb.RELEASE))


@given("the flow dc1-to-dc2 mirrors the quotas of dc1")
def _(shop: Shop) -> None:
    create_topic(shop.lab.clusters["dc1"].client, shop.name("orders"), 1)
    flow = {"name": "dc1-to-dc2", "from": "dc1", "to": "dc2", "topics": {"include": shop.name("orders")}}
    shop.topology.more["flows"] = [{**flow, "quotas": {"sync": True}}]


@given(parsers.parse('the topology limits the {key} {word} at {cluster}: "{text}"'))
@when(parsers.parse('the topology limits the {key} {word} at {cluster}: "{text}"'))
def _(shop: Shop, key: str, word: str, cluster: str, text: str) -> None:
    entity = {"user": shop.name(word)} if key == "user" else {"ip": word}
    quotas = shop.quotas()
    quotas[:] = [one for one in quotas if not entity.items() <= one.items()]
    quotas.append({"cluster": cluster, **entity, **yaml.safe_load("{" + text + "}")})


@given(parsers.re(r"an operator sets (?P<limit>\S+=\S+) for (?P<word>\w+) at (?P<cluster>\w+)"))
@when(parsers.re(r"an operator sets (?P<limit>\S+=\S+) for (?P<word>\w+) at (?P<cluster>\w+)"))
def _(shop: Shop, limit: str, word: str, cluster: str) -> None:
    shop.tool(cluster, word, "--alter", "--add-config", limit)
    key, value = limit.split("=")
    wait_for(lambda: shop.limits(cluster, word).get(key) == float(value))


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


@when(parsers.parse("the quota of {word} is taken out of the topology"))
def _(shop: Shop, word: str) -> None:
    shop.quotas()[:] = [one for one in shop.quotas() if one["user"] != shop.name(word)]


@when(parsers.parse("an operator removes {key} of {word} at {cluster}"))
def _(shop: Shop, key: str, word: str, cluster: str) -> None:
    shop.tool(cluster, word, "--alter", "--delete-config", key)
    wait_for(lambda: key not in shop.limits(cluster, word))


@when("the mirrored quotas of loader and auditor are applied")
def _(shop: Shop) -> None:
    """Applies them without the job of the flow, which has no part in it."""
    shop.command("apply", "--auto-approve", "--target", f"quota.dc2.user/{shop.name('loader')}")
    shop.succeeds()


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


@then(parsers.parse('the limits of {word} at {cluster} are "{text}"'))
def _(shop: Shop, word: str, cluster: str, text: str) -> None:
    assert shop.limits(cluster, word) == {key: float(value) for key, value in _LIMIT.findall(text)}


@then(parsers.parse("{word} has no limits at {cluster}"))
def _(shop: Shop, word: str, cluster: str) -> None:
    assert shop.limits(cluster, word) == {}
