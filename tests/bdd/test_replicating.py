"""Steps of features/replicating: two jobs, launched by one apply, shared by all scenarios."""

from collections.abc import Iterator

import pytest
from pytest_bdd import given, parsers, scenarios, then, when

from planner.apply.job_watch import JobWatch
from planner.kafka import ClusterClient, run_at
from runtime.lab.lab import Lab
from tests.bdd.running import SMALL, Town, eventually, fresh_names
from tests.endpoints import endpoint
from tests.topologies import at

pytestmark = [pytest.mark.integration, pytest.mark.spark]

scenarios(*(f"replicating/{name}.feature" for name in ("changing", "copying", "surviving")))


@pytest.fixture(scope="module")
def town(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    folder = tmp_path_factory.mktemp("town")
    name = fresh_names()
    quick = {
        "follow": {"every": "500ms"},
        "heartbeats": False,
        "checkpoints": False,
        "groups": {"sync": False},
    }
    there = {"name": name("dc1-to-dc2"), "from": "dc1", "to": "dc2", "job": name("into-dc2"), **quick}
    there["topics"] = {"include": [name("orders"), name("new-") + ".*", name("new-events"), name("returns")]}
    ways = [
        {"name": name(f"both-into-{to}"), "from": source, "to": to, "job": name(f"into-{to}"), **quick}
        | {"topics": {"include": [name("catalog")]}}
        for source, to in (("dc1", "dc2"), ("dc2", "dc1"))
    ]
    topology = at(lab, name("town"), folder, ("dc1", "dc2"))
    topology.more["flows"] = [there, *ways]
    topology.more["jobs"] = {name("into-dc1"): SMALL, name("into-dc2"): SMALL}
    for cluster in ("dc1", "dc2"):
        topology.topics.append({"name": name("catalog"), "cluster": cluster, "partitions": 2})
    topology.topics.append({"name": name("orders"), "cluster": "dc1", "partitions": 2})
    made = Town(lab, topology, folder / "home", name)
    topology.write()
    try:
        made.apply()
        yield made
    finally:
        made.over()


# Given


@given("the topology is applied and its jobs run")
def _(town: Town) -> None:
    assert town.topology.file.exists()


@given(parsers.parse("{count:d} records were copied to {word} at dc2"))
def _(town: Town, word: str, count: int) -> None:
    town.write(word, "dc1", count)
    arrived(town, word, "dc2", "dc1")


# When


@when("the topology is planned")
def _(town: Town) -> None:
    town.run("plan", str(town.topology.file))


@when(parsers.parse("the topology is applied with {option}"))
def _(town: Town, option: str) -> None:
    town.apply(option)


@when(parsers.parse("the engineer runs repl {command} on {word}"))
def _(town: Town, command: str, word: str) -> None:
    on_flow(town, word, command)


@when(parsers.parse("the engineer accepts the loss of {word}"))
def _(town: Town, word: str) -> None:
    on_flow(town, word, "resume", "--accept-loss")


def on_flow(town: Town, word: str, *command: str) -> None:
    town.topology.write()
    done = town.engineer(*command, town.name(word))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@when(parsers.parse("the flow {word} is removed from the topology"))
def _(town: Town, word: str) -> None:
    flows = town.topology.more["flows"]
    town.topology.more["gone"] = town.flow(word)
    town.topology.more["flows"] = [one for one in flows if one["name"] != town.name(word)]
    gone = town.topology.more.pop("gone")
    town.apply()
    town.topology.more["flows"].append(gone)  # what is not written is not applied


@when(parsers.parse("the flow {word} is added again"))
def _(town: Town, word: str) -> None:
    assert town.flow(word)
    town.apply()


@when("every process of the job into dc2 is killed with -9")
def _(town: Town) -> None:
    town.kill("dc2", "supervisor", "watchman", "application")


# Then


@then(parsers.parse("{word} at {here} holds the records of {there}, each once and in order"))
def _(town: Town, word: str, here: str, there: str) -> None:
    arrived(town, word, here, there)


def arrived(town: Town, word: str, here: str, there: str) -> None:
    expected = town.values(word, there)
    eventually(lambda: town.values(word, here) == expected, about=f"{word}: {expected}")


@then(parsers.parse("the job says that {word} is {state}"))
def _(town: Town, word: str, state: str) -> None:
    """Itself: what `repl status` reads from the clusters may be ahead of it."""

    async def states(client: ClusterClient) -> set[str]:
        async with JobWatch(client) as watch:
            partitions = watch.table.partitions(town.name("into-dc2"))
        return {str(one.state) for one in partitions if one.topic == town.name(word)}

    eventually(lambda: run_at(endpoint(town.lab, "dc2"), states) == {state}, about=f"{word} is {state}")


@then(parsers.parse("{word} at {here} holds the last {count:d} records of {there}"))
def _(town: Town, word: str, here: str, count: int, there: str) -> None:
    last = [values[-count:] for values in town.values(word, there)]
    eventually(lambda: town.partitions(word, here) == len(last) and town.values(word, here) == last)


@then(parsers.parse("{word} at {cluster} gets none of them"))
def _(town: Town, word: str, cluster: str) -> None:
    before = len(town.records(word, "dc1"))
    status = town.run("plan", str(town.topology.file))  # takes longer than any record ever does
    assert status.returncode == 0
    assert len(town.records(word, cluster)) < before


@then(parsers.parse("{word} holds the same {count:d} records at dc1 and dc2"))
def _(town: Town, word: str, count: int) -> None:
    wanted = sorted(value for cluster in ("dc1", "dc2") for value in town.written[word, cluster])
    assert len(wanted) == count
    eventually(lambda: held(town, word, "dc1") == wanted, about=f"{word} at dc1")
    eventually(lambda: held(town, word, "dc2") == wanted, about=f"{word} at dc2")


def held(town: Town, word: str, cluster: str) -> list[bytes]:
    return sorted(record.value or b"" for record in town.records(word, cluster))


@then("no record is copied back")
def _(town: Town) -> None:
    before = {cluster: held(town, "catalog", cluster) for cluster in ("dc1", "dc2")}
    town.write("orders", "dc1", 1)  # what is written later has arrived: nothing of before is still on its way
    arrived(town, "orders", "dc2", "dc1")
    assert {cluster: held(town, "catalog", cluster) for cluster in ("dc1", "dc2")} == before


@then("repl drift reports that the job into dc2 is not running")
def _(town: Town) -> None:
    def told() -> bool:
        done = town.run("drift", str(town.topology.file))
        return done.returncode == 2 and "running -> not running" in done.stdout

    eventually(told, about="drift")
