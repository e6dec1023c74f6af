"""Steps of failing_over/meeting.feature: three clusters and one topology with three jobs, shared."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from pytest_bdd import given, parsers, scenarios, then, when

from planner.workflows import OffsetsRequest, offsets
from runtime.contract.results.status import FlowHealth
from tests.bdd.console import read_on, read_rest
from tests.bdd.running import SMALL, Town, eventually, fresh_names
from tests.labs import running_lab, spec
from tests.processes import kill_together
from tests.topologies import at

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]

scenarios("failing_over/meeting.feature")

CLUSTERS = ("dc1", "hub", "dc2")
Eaten = dict[str, list[bytes]]


def flow(
    name: Callable[[str], str], word: str, source: str, destination: str, topic: str, **more: str
) -> dict[str, object]:
    return {
        "name": name(word),
        "from": source,
        "to": destination,
        "topics": {"include": [name(topic)]},
        "job": name(f"into-{destination}"),
        "follow": {"every": "500ms"},
        "groups": {"every": "300ms"},
        "heartbeats": False,
        "provenance": "batch",
        **more,
    }


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    folder, name = tmp_path_factory.mktemp("meeting"), fresh_names()
    with running_lab(folder / "lab", *(spec(cluster) for cluster in CLUSTERS)) as lab:
        topology = at(lab, name("town"), folder, CLUSTERS)
        topology.more["flows"] = [
            flow(name, "payments-to-dc2", "dc1", "dc2", "payments"),
            flow(name, "payments-to-dc1", "dc2", "dc1", "payments"),
            flow(name, "to-the-hub", "dc1", "hub", "orders", provenance="headers"),
            flow(name, "onward", "hub", "dc2", "orders", provenance="headers"),
        ]
        topology.more["jobs"] = {name(f"into-{cluster}"): SMALL for cluster in CLUSTERS}
        for cluster, topic in (("dc1", "payments"), ("dc2", "payments"), ("dc1", "orders")):
            topology.topics.append({"name": name(topic), "cluster": cluster, "partitions": 2})
        made = Town(lab, topology, folder / "home", name)
        topology.write()
        try:
            made.apply()
            yield made
        finally:
            for job in CLUSTERS:
                kill_together(made.processes(job).values())


@pytest.fixture
def eaten() -> Eaten:
    """What each group read, wherever it was."""
    return {}


def held(town: Town, word: str, cluster: str) -> Counter[bytes]:
    return Counter(value or b"" for values in town.values(word, cluster) for value in values)


def all_of(town: Town, word: str) -> Counter[bytes]:
    return Counter(value for (topic, _), values in town.written.items() if topic == word for value in values)


def arrived(town: Town, word: str, *clusters: str) -> None:
    wanted = all_of(town, word)
    eventually(lambda: all(held(town, word, one) == wanted for one in clusters), about=f"all {word}")


def flows(town: Town) -> dict[str, FlowHealth]:
    return {one.name: one for one in town.status().flows}


# Given


@given("dc1, the hub and dc2 replicate")
def _(town: Town) -> None:
    assert "Apply complete!" in town.last().stdout or town.written


@given(
    parsers.parse(
        "{one:d} payments are written at dc1 and {two:d} at dc2, and both clusters hold all of them"
    ),
)
def _(town: Town, one: int, two: int) -> None:
    town.write("payments", "dc1", one)
    town.write("payments", "dc2", two)
    arrived(town, "payments", "dc1", "dc2")


@given(parsers.parse("{count:d} orders are written at dc1 and copied to dc2"))
def _(town: Town, count: int) -> None:
    town.write("orders", "dc1", count)
    arrived(town, "orders", "hub", "dc2")


@given(
    parsers.re(
        r"(?P<group>\w+) reads (?P<count>\d+) (?P<word>\w+) at (the )?(?P<cluster>\w+) with Kafka's .*"
    )
)
def _(town: Town, eaten: Eaten, group: str, count: str, word: str, cluster: str) -> None:
    eaten[group] = read_on(town, group, word, cluster, int(count))


@given(parsers.parse("its offsets are synced to dc2"))
def _(town: Town, eaten: Eaten) -> None:
    """And the job knows that nothing is missing."""
    (group,) = eaten
    flow = town.name("payments-to-dc2" if group == "billing" else "onward")

    def known() -> bool:
        seen = offsets(OffsetsRequest(town.topology.file, flow=flow, group=town.name(group)))
        return {one.state for one in seen.partitions} == {"translated"}

    eventually(known, about="places")
    eventually(lambda: flows(town)[flow].states == {"caught_up": 2}, about="caught up")


# When


@when("the job into dc2 is killed")
def _(town: Town) -> None:
    town.kill("dc2", "application")


@when(parsers.parse("{count:d} {word} are written at dc1"))
def _(town: Town, count: int, word: str) -> None:
    town.write(word, "dc1", count)


@when(
    parsers.parse(
        "{one:d} payments are written at dc2 by the producer of dc2 and {two:d} by the producer of dc1"
    )
)
def _(town: Town, one: int, two: int) -> None:
    town.write("payments", "dc2", one)
    town.write("payments", "dc2", two)


@when("the hub is lost")
def _(town: Town) -> None:
    town.lab.kill("hub")


@when("the engineer declares a flow from dc1 to dc2 that starts at the origin offsets of the records at dc2")
def _(town: Town) -> None:
    words = f"read dc2 {town.name('orders')} --limit 1000 --json --path {town.topology.file}"
    records = json.loads(town.run(*words.split()).stdout)["records"]
    ends = {one["partition"]: one["hops"][0]["offset"] + 1 for one in records}
    onward = town.flow("onward")
    onward["state"] = "failed_over"
    past = {**onward, "name": town.name("past-the-hub"), "from": "dc1", "state": "active"}
    town.topology.more["flows"].append({**past, "start": {"offsets": {town.name("orders"): ends}}})
    file = town.topology.write()
    file.write_text(re.sub(r'"(\d+)":', r"\1:", file.read_text()))  # in YAML a partition is a number
    town.run("apply", str(file), "--auto-approve")


# Then


@then(
    "the flow from the hub is failed_over,"
    " and the status of the flow to the hub says that the hub does not answer"
)
def _(town: Town) -> None:
    seen = flows(town)
    assert seen[town.name("onward")].state == "failed_over"
    assert seen[town.name("to-the-hub")].destination_answers is False
    eventually(lambda: flows(town)[town.name("payments-to-dc2")].states == {"caught_up": 2})


@then("billing reads at dc2, with Kafka's console consumer, everything at dc2 that it had not read")
def _(town: Town, eaten: Eaten) -> None:
    """Some may be read again, for both sides write the topic; none is skipped."""
    unread = held(town, "payments", "dc2").keys() - set(eaten["billing"])
    eaten["billing"] += read_rest(town, "billing", "payments", "dc2", lambda found: unread <= set(found))


@then("billing reads at dc2, with Kafka's console consumer, the payments that arrived late")
def _(town: Town, eaten: Eaten) -> None:
    late = all_of(town, "payments").keys() - set(eaten["billing"])
    assert late
    found = read_rest(town, "billing", "payments", "dc2", lambda found: len(found) >= len(late))
    assert sorted(found) == sorted(late)


@then(
    parsers.parse("{group} reads at dc2, with Kafka's console consumer, exactly the other {count:d} orders")
)
def _(town: Town, eaten: Eaten, group: str, count: int) -> None:
    found = read_rest(town, group, "orders", "dc2", lambda found: len(found) >= count)
    assert sorted(eaten[group] + found) == sorted(town.written["orders", "dc1"])


@then(parsers.parse("dc1 and dc2 hold all {count:d} payments, each once, and those of one producer in order"))
def _(town: Town, count: int) -> None:
    assert all_of(town, "payments").total() == count
    arrived(town, "payments", "dc1", "dc2")
    for cluster in ("dc1", "dc2"):
        for values in town.values("payments", cluster):
            for producer in (b"dc1", b"dc2"):
                numbers = [int(one.split(b"-")[1]) for one in values if one and one.startswith(producer)]
                assert numbers == sorted(numbers)


@then(
    parsers.re(r"(the )?(?P<cluster>\w+) holds all (?P<count>\d+) (?P<word>orders), each once and in order")
)
def _(town: Town, cluster: str, count: str, word: str) -> None:
    expected = town.values(word, "dc1")
    assert sum(map(len, expected)) == int(count)
    eventually(lambda: town.values(word, cluster) == expected, about=word)
