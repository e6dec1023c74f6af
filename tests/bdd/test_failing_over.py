"""Steps of features/failing_over: a lab that loses its dc1 and gets it back, and a job for each scenario."""

import json
import shutil
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer
from pytest_bdd import given, parsers, scenarios, then, when

from runtime.lab.lab import Lab
from tests.bdd.consuming import consumer_of, eat, read_before
from tests.bdd.running import Town, eventually, fresh_names, one_way
from tests.labs import spec
from tests.processes import below, kill_together
from tests.records import coordinators_ready

pytestmark = [pytest.mark.integration, pytest.mark.spark]

scenarios(*(f"failing_over/{name}.feature" for name in ("losing", "switching")))

Eaten = dict[str, list[bytes]]


@pytest.fixture(scope="module")
def datacenters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Of this module alone: it loses one of them."""
    made = Lab(tmp_path_factory.mktemp("datacenters"))
    made.up([spec("dc1"), spec("dc2")])
    for cluster in made.clusters.values():
        coordinators_ready(cluster.client)
    try:
        yield made
    finally:
        made.down(purge=True)


@pytest.fixture
def town(datacenters: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    datacenters.start("dc1")
    folder = tmp_path_factory.mktemp("town")
    made = one_way(datacenters, folder, fresh_names(), "orders", groups={"every": "300ms"})
    yield made
    kill_together(made.processes("dc2").values())


@pytest.fixture
def eaten() -> Eaten:
    """What each group read, at either side."""
    return {}


@pytest.fixture
def connected() -> Iterator[list[Consumer]]:
    consumers: list[Consumer] = []
    yield consumers
    for consumer in consumers:
        consumer.close()


# Given


@given(parsers.parse("{count:d} records are written to orders at dc1"))
def _(town: Town, count: int) -> None:
    town.write("orders", "dc1", count)


@given(parsers.parse("the group {group} has read {count:d} of them at dc1"))
def _(town: Town, eaten: Eaten, group: str, count: int) -> None:
    consumer = consumer_of(town, group, "dc1")
    eaten[group] = eat(consumer, count)
    consumer.close()


@given("the groups' offsets are synced to dc2")
def _(town: Town, eaten: Eaten) -> None:
    """And everything arrived: the job knows that nothing is missing when the source is lost."""

    def known() -> bool:
        return all(read_before(town, group, "dc2") == sorted(read) for group, read in eaten.items())

    eventually(known, about="places")

    def caught_up() -> bool:
        return {one.states.get("caught_up") for one in town.status().flows} == {2}

    eventually(caught_up, about="caught up")


@given(parsers.parse("the group {group} reads at dc2 and stays connected"))
def _(town: Town, eaten: Eaten, connected: list[Consumer], group: str) -> None:
    connected.append(consumer_of(town, group, "dc2"))
    eaten[group] += eat(connected[-1], 20)


# When


@when("the machine of the job is lost")
def _(town: Town) -> None:
    """Driver and workers, too; who acts next sits at another one, and has the topology alone."""
    running = below(town.processes("dc2")["application"].pid)
    town.kill("dc2", "supervisor", "watchman", "application")
    kill_together(running)
    shutil.rmtree(town.home)
    town.home = town.home.with_name("elsewhere")


@when("the engineer rehearses the failover of dc1")
def _(town: Town) -> None:
    town.run("failover", "dc1", "--rehearse", "--path", str(town.topology.file))


@when("the engineer applies the topology file from before")
def _(town: Town) -> None:
    town.run("apply", str(town.topology.write()), "--auto-approve")


# Then


@then("the topology is unchanged")
def _(town: Town) -> None:
    before = town.topology.file.read_text()
    assert town.topology.write().read_text() == before
    assert town.run("plan", str(town.topology.file), "--detailed-exitcode").returncode == 0


@then(parsers.parse("orders at dc2 holds all {count:d}, each once and in order"))
def _(town: Town, count: int) -> None:
    values = town.values("orders", "dc2")
    assert values == town.values("orders", "dc1")
    assert sum(map(len, values)) == count


@then(parsers.parse("repl status shows the flow as {state}"))
def _(town: Town, state: str) -> None:
    done = repl_status(town)
    (flow,) = json.loads(done)["flows"]
    assert (flow["state"], flow["declared"]) == (state, state)


def repl_status(town: Town) -> str:
    return town.run("status", str(town.topology.file), "--json", "--over", "0s").stdout


@then(parsers.parse("the group {group} reads exactly the other {count:d} records at dc2"))
def _(town: Town, eaten: Eaten, group: str, count: int) -> None:
    consumer = consumer_of(town, group, "dc2")
    rest = eat(consumer, count)
    consumer.close()
    assert sorted(eaten[group] + rest) == sorted(town.written["orders", "dc1"])


@then(parsers.parse("the offsets of {group} at dc2 are unchanged"))
def _(town: Town, eaten: Eaten, group: str) -> None:
    assert read_before(town, group, "dc2") == sorted(eaten[group])
