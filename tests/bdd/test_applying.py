"""Steps of features/planning and applying: the real command, and the clusters as clients see them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml
from confluent_kafka.admin import AdminClient
from pytest_bdd import given, parsers, scenarios, when

from planner.kafka import ClusterClient, run_at
from planner.kafka.log import LogWriter
from planner.state import internal_topics
from planner.state.lease import LeaseHolder, LeaseVerb, encode_lease
from planner.workflows import HistoryRequest, history
from runtime.contract.spec.naming import LEASE
from runtime.contract.spec.topic_settings import InternalSpec
from runtime.lab.lab import Lab
from tests.commands import repl
from tests.endpoints import endpoint
from tests.records import admin_of
from tests.topologies import Topology, at

pytestmark = pytest.mark.integration

scenarios("planning", "applying")


@dataclass
class Shop:
    """A topology on shared clusters. Names are short in the text and fresh ones at the clusters."""

    lab: Lab
    folder: Path
    fresh: Callable[[str], str]
    topology: Topology
    names: dict[str, str] = field(default_factory=dict)
    done: CompletedProcess[str] | None = None
    opened: ExitStack = field(default_factory=ExitStack)

    def name(self, word: str) -> str:
        return self.names.setdefault(word, self.fresh(word))

    def run(self, *arguments: str) -> None:
        self.done = repl(*arguments)

    def command(self, command: str, *options: str) -> None:
        """Runs a command over the topology as it is now."""
        self.run(command, str(self.topology.write()), *options)

    def succeeds(self) -> None:
        assert self.last().returncode == 0, self.last().stderr

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
    with made.opened:
        yield made


@pytest.fixture
def drill(shop: Shop) -> Shop:
    """What the steps of `repl drill` act on."""
    return shop


# Given


@given(parsers.parse("a topology with the topic {word} of {count:d} partitions at dc1"))
@when(parsers.parse("the team declares {word} at dc1 with {count:d} partitions"))
def _(shop: Shop, word: str, count: int) -> None:
    shop.topology.topic(shop.name(word), partitions=count)


@given(parsers.parse('{word} is declared with "{text}"'))
def _(shop: Shop, word: str, text: str) -> None:
    kept = next(one for one in shop.topology.topics if one["name"] == shop.name(word))
    shop.topology.topic(**{**kept, **yaml.safe_load("{" + text + "}")})


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


@when("the topology is planned")
def _(shop: Shop) -> None:
    shop.command("plan")


@when(parsers.parse("the pipeline plans with --out {file}"))
def _(shop: Shop, file: str) -> None:
    shop.command("plan", "--out", shop.file(file))


@when(parsers.parse("the pipeline plans a rollback of the last apply with --out {file}"))
def _(shop: Shop, file: str) -> None:
    applies = history(HistoryRequest(shop.topology.file)).applies
    last = [one.id for one in applies if one.topology == shop.topology.name][-1]
    shop.command("plan", "--rollback", last, "--out", shop.file(file))
    shop.succeeds()


@when(parsers.re(r"the pipeline applies (?P<file>\w+\.bin)"))
def _(shop: Shop, file: str) -> None:
    shop.run("apply", shop.file(file))


@when("the pipeline applies the topology with --auto-approve and --lock-timeout 1s")
def _(shop: Shop) -> None:
    shop.command("apply", "--auto-approve", "--lock-timeout", "1s")
