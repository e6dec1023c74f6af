"""Steps of features/replicating: a job, launched by one apply, shared by all scenarios."""

from collections.abc import Iterator

import pytest
from pytest_bdd import given, parsers, scenarios, then, when

from planner.apply.job_watch import JobWatch
from planner.kafka import ClusterClient, run_at
from runtime.lab.lab import Lab
from tests.bdd.running import Town, eventually, fresh_names, one_way
from tests.endpoints import endpoint

pytestmark = [pytest.mark.integration, pytest.mark.spark]

scenarios(*(f"replicating/{name}.feature" for name in ("changing", "copying", "surviving")))


@pytest.fixture(scope="module")
def town(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    folder = tmp_path_factory.mktemp("town")
    name = fresh_names()
    made = one_way(
        lab,
        folder,
        name,
        "orders",
        topics={"include": [name(word) for word in ("orders", "new-events", "returns")]},
        heartbeats=False,
        checkpoints=False,
        groups={"sync": False},
    )
    try:
        made.apply()
        yield made
    finally:
        made.over()


# Given


@given("the topology is applied and its jobs run")
def _(town: Town) -> None:
    assert town.topology.file.exists()


# When


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


@when("every process of the job into dc2 is killed with -9")
def _(town: Town) -> None:
    town.kill("dc2", "supervisor", "watchman", "application")


# Then


@then(parsers.parse("{word} at {here} holds the records of {there}, each once and in order"))
def _(town: Town, word: str, here: str, there: str) -> None:
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


@then("repl drift reports that the job into dc2 is not running")
def _(town: Town) -> None:
    def told() -> bool:
        done = town.run("drift", str(town.topology.file))
        return done.returncode == 2 and "running -> not running" in done.stdout

    eventually(told, about="drift")
