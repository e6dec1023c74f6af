"""What a plan asks of the clusters, how long it waits for them, and when it is made again."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from planner.graph.expansion import read_requests
from planner.kafka import run
from planner.model.address import topic_address
from planner.model.diagnostic import ExitCode, Failure, error
from planner.model.observed import RegistryEntry
from planner.model.plan import Plan
from planner.model.topology import Cluster, Flow, Selection, Topic, Topology
from planner.observe.broker_check import BROKER_OUTDATED
from planner.observe.observer import named_topics
from planner.plan.make import with_diagnostics
from planner.plan.staleness import stale_diagnostic
from planner.workflows.applying.apply import with_next_step
from planner.workflows.audit.replication_status import status_request
from planner.workflows.plans import retry_while_outdated
from tests.fakes.replacing import replace
from tests.fakes.states import cluster, flow, live, observed, topology
from tests.planner.plan.jobs import plan


def declaring(*topics: Topic, flows: Sequence[Flow] = ()) -> Topology:
    return Topology("shop", {}, topics, flows={one.name: one for one in flows})


def owned(name: str, topology_name: str = "shop") -> RegistryEntry:
    return RegistryEntry(topic_address("dc1", name), topology_name)


def test_what_leaves_the_topology_is_read_with_what_goes_along() -> None:
    there = cluster(live("orders"), live("old"), owned=[owned("orders"), owned("old"), owned("x", "another")])
    wanted = read_requests(_with(declaring(Topic("orders", "dc1")), "dc1"), observed(there))["dc1"]
    assert set(wanted.configs) == {"orders", "old"}
    assert "old" in wanted.configs
    assert wanted.sizes == {"old"}
    assert wanted.every_group


def test_what_a_flow_reads_leaves_like_any_other_topic() -> None:
    """Also by repl destroy, for which nothing is declared any more."""
    reads = flow("f", topics=Selection(("orders",)))
    there = observed(cluster(live("orders"), owned=[owned("orders")]), cluster(name="dc2"))
    gone = _with(declaring(flows=[reads]), "dc1", "dc2")
    kept = _with(declaring(Topic("orders", "dc1"), flows=[reads]), "dc1", "dc2")

    assert [read_requests(one, there)["dc1"].sizes for one in (kept, gone, kept.declaring_nothing())] == [
        frozenset(),
        {"orders"},
        {"orders"},
    ]


def test_names_that_are_written_out_are_asked_for_by_name() -> None:
    mirrored = flow("f", topics=Selection(("orders", r"eu\.payments", "tmp-.*")))
    names = named_topics(declaring(Topic("ledger", "dc2"), flows=[mirrored]))
    assert names == {"dc2": frozenset({"ledger"}), "dc1": frozenset({"orders", "eu.payments"})}


def _with(topology: Topology, *clusters: str) -> Topology:
    return replace(topology, clusters={name: Cluster(name, bootstrap="a:1") for name in clusters})


SHOP = topology(flow())


def test_only_who_is_given_up_is_waited_for_less() -> None:
    clusters = status_request(SHOP, given_up="dc1").clusters
    assert {name: one.within(60.0) for name, one in clusters.items()} == {"dc1": 3.0, "dc2": 60.0}
    assert {name: one.within(1.0) for name, one in clusters.items()} == {"dc1": 1.0, "dc2": 1.0}
    assert {one.within(60.0) for one in status_request(SHOP).clusters.values()} == {60.0}


def test_the_hint_of_a_stale_plan_is_that_of_where_it_comes_from() -> None:
    stale = stale_diagnostic("topic.dc1.orders", "retention.ms is 5s now, not set when the plan was made")
    refused = error("a guard", "look", exit=ExitCode.REFUSED)

    told = with_next_step(Failure([stale, refused]), "plan again")

    assert [one.hint for one in told.diagnostics] == ["plan again", "look"]
    assert told.exit_code is ExitCode.REFUSED


EMPTY = topology()
NOTHING = observed(cluster(), cluster(name="dc2"))


@dataclass
class Brokers:
    """They show what their controller knows once they were read so many times; 0 is the first reading."""

    from_reading: int
    readings: int = 0

    async def plan(self) -> Plan:
        made, behind = plan(EMPTY, NOTHING), self.readings < self.from_reading
        self.readings += 1
        return with_diagnostics(made, [error("it exists", code=BROKER_OUTDATED)]) if behind else made


@pytest.mark.parametrize("readings", [0, 1, 2])
def test_it_is_read_again_until_the_brokers_show_it(readings: int) -> None:
    brokers = Brokers(readings)

    made = run(retry_while_outdated(brokers.plan))

    assert (made.errored, brokers.readings - 1) == (False, readings)


def test_brokers_that_never_show_it_are_an_error_of_the_plan() -> None:
    brokers = Brokers(10**6)

    made = run(retry_while_outdated(brokers.plan, within_s=0.5))

    assert [one.code for one in made.diagnostics] == [BROKER_OUTDATED]
    assert brokers.readings > 1


def test_a_long_first_reading_leaves_time_to_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers, clock = Brokers(1), [0.0]

    async def pass_time(seconds: float) -> None:
        clock[0] += seconds

    async def make() -> Plan:
        await pass_time(65)
        return await brokers.plan()

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(asyncio, "sleep", pass_time)
    assert not run(retry_while_outdated(make)).errored
    assert brokers.readings == 2
