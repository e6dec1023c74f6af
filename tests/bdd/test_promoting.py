"""Steps of features/failing_over/promoting: each scenario ends its flow or a part of it."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_bdd import given, parsers, scenarios, then, when

from runtime.lab.lab import Lab
from tests.bdd.consuming import consumer_of, eat, read_before
from tests.bdd.running import Town, eventually, fresh_names, one_way
from tests.commands import begin
from tests.processes import lives

pytestmark = [pytest.mark.integration, pytest.mark.spark]

scenarios("failing_over/promoting.feature")

TOPICS = ("orders", "payments", "refunds")
Eaten = dict[tuple[str, str], list[bytes]]


@pytest.fixture
def town(lab: Lab, tmp_path: Path) -> Iterator[Town]:
    name = fresh_names()
    groups = {"every": "300ms", "include": [name(".*")]}
    made = one_way(lab, tmp_path, name, *TOPICS, groups=groups)
    try:
        made.apply()
        yield made
    finally:
        made.over()


@pytest.fixture
def eaten() -> Eaten:
    """What each group read of each topic, at either side."""
    return {}


def topic_state(town: Town, word: str) -> str:
    done = town.run("status", str(town.topology.file), "--json", "--over", "0s")
    (flow,) = json.loads(done.stdout)["flows"]
    return str(next(one["state"] for one in flow["topics"] if one["topic"] == town.name(word)))


def read_at(town: Town, eaten: Eaten, group: str, word: str, cluster: str, count: int) -> None:
    consumer = consumer_of(town, group, cluster, word)
    eaten.setdefault((group, word), []).extend(eat(consumer, count))
    consumer.close()


# Given


@given("orders, payments and refunds are copied from dc1 to dc2")
def _(town: Town) -> None:
    assert town.topology.file.exists()


@given(parsers.parse("the group {group} has read {count:d} records of {word} at dc1"))
def _(town: Town, eaten: Eaten, group: str, count: int, word: str) -> None:
    read_at(town, eaten, group, word, "dc1", count)


@given(parsers.parse("the offsets of {group} in {word} are synced to dc2"))
def _(town: Town, eaten: Eaten, group: str, word: str) -> None:
    read = sorted(eaten[group, word])
    eventually(lambda: read_before(town, group, "dc2", word) == read, about="places")


# When


@when(parsers.parse("the engineer promotes {word}"))
def _(town: Town, word: str) -> None:
    town.engineer("promote", town.name("dc1-to-dc2"), "--topics", town.name(word))


@when("the engineer applies the topology file from before")
def _(town: Town) -> None:
    """And puts it right afterwards."""
    now = town.topology.file.read_text()
    town.run("apply", str(town.topology.write()), "--auto-approve")
    town.topology.file.write_text(now)


@when("the engineer runs repl failover dc1 and presses Ctrl-C while the job is updated")
def _(town: Town) -> None:
    arguments = ["failover", "dc1", "--path", str(town.topology.file), "--auto-approve"]
    process = begin(*arguments, env={"REPL_HOME": str(town.home)})
    assert process.stderr is not None
    said = ""
    while ": updating ..." not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGINT)
    out, more = process.communicate(timeout=120)
    town.ended(process, out, said + more)


# Then


@then(parsers.parse("{word} at dc2 holds all {count:d}, each once and in order"))
def _(town: Town, word: str, count: int) -> None:
    values = town.values(word, "dc2")
    assert values == town.values(word, "dc1")
    assert sum(map(len, values)) == count


@then(parsers.parse("the group {group} reads exactly the other {count:d} records of {word} at dc2"))
def _(town: Town, eaten: Eaten, group: str, count: int, word: str) -> None:
    read_at(town, eaten, group, word, "dc2", count)
    assert sorted(eaten[group, word]) == sorted(town.written[word, "dc1"])


@then(parsers.parse("the group {group} reads exactly the remaining records of {word} at dc2"))
def _(town: Town, eaten: Eaten, group: str, word: str) -> None:
    rest = len(town.written[word, "dc1"]) - len(eaten[group, word])
    read_at(town, eaten, group, word, "dc2", rest)
    assert sorted(eaten[group, word]) == sorted(town.written[word, "dc1"])


@then(parsers.parse("repl status shows {word} as promoted"))
def _(town: Town, word: str) -> None:
    assert topic_state(town, word) == "promoted"


@then("repl status shows the flow as failed_over")
def _(town: Town) -> None:
    assert topic_state(town, "orders") == "failed_over"


@then(parsers.parse("new records of {word} arrive at dc2"))
def _(town: Town, word: str) -> None:
    town.write(word, "dc1", 2)
    last = town.written[word, "dc1"][-1]
    eventually(lambda: any(last in values for values in town.values(word, "dc2")), about=word)


@then(parsers.parse("none of the {count:d} records of dc1 arrives in {word} at dc2"))
def _(town: Town, count: int, word: str) -> None:
    late = set(town.written[word, "dc1"][-count:])
    assert not late.intersection(value for values in town.values(word, "dc2") for value in values)


@then("no job is running")
def _(town: Town) -> None:
    eventually(lambda: not any(map(lives, town.processes("dc2").values())), about="no job is running")
