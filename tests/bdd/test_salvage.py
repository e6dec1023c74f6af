"""Steps of failing_over/salvage.feature: a lab that loses its dc1 and gets it back."""

import json
import re
from collections.abc import Iterator

import pytest
from pytest_bdd import given, parsers, scenarios, then, when

from runtime.lab.lab import Lab
from tests.bdd.running import Town, eventually, fresh_names, one_way
from tests.labs import spec
from tests.processes import kill_together

pytestmark = [pytest.mark.integration, pytest.mark.spark]

scenarios("failing_over/salvage.feature")


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    folder = tmp_path_factory.mktemp("salvage")
    lab = Lab(folder / "lab")
    try:
        lab.up([spec("dc1"), spec("dc2")])
        made = one_way(lab, folder, fresh_names(), "orders")
        yield made
        kill_together(made.processes("dc2").values())
    finally:
        lab.down(purge=True)


# Given


@given(parsers.parse("{count:d} records are written to orders at dc1 and copied to dc2"))
def _(town: Town, count: int) -> None:
    town.write("orders", "dc1", count)
    eventually(lambda: sum(map(len, town.values("orders", "dc2"))) == count, about="copied")


@given("the flow is paused")
def _(town: Town) -> None:
    done = town.run("pause", town.name("dc1-to-dc2"), "--path", str(town.topology.file), "--auto-approve")
    assert done.returncode == 0, done.stderr


@given(parsers.parse("{count:d} more records are written to orders at dc1"))
def _(town: Town, count: int) -> None:
    town.write("orders", "dc1", count)


@given("the job has seen the end offsets of dc1")
def _(town: Town) -> None:
    """What is said of dc1 where it can't be reached is what the job saw of it last."""
    unreachable = town.topology.file.with_name("unreachable.yaml")
    text = town.topology.file.read_text()
    unreachable.write_text(text.replace(town.lab.clusters["dc1"].bootstrap, "127.0.0.1:1"))

    def saw() -> bool:
        done = town.run("failover", "dc1", "--rehearse", "--path", str(unreachable))
        return "at least 60 records" in done.stdout

    eventually(saw, about="the end of dc1")


# When


@when("the engineer replays the missing records")
def _(town: Town) -> None:
    flow, file = town.name("dc1-to-dc2"), str(town.topology.file)
    town.run("salvage", flow, "--replay", "--path", file, "--auto-approve")


@when("the engineer replays the missing records into the topic recovered")
def _(town: Town) -> None:
    town.make("recovered", "dc2", 2)
    flow, file = town.name("dc1-to-dc2"), str(town.topology.file)
    words = ("--replay", "--to", town.name("recovered"), "--auto-approve")
    town.run("salvage", flow, *words, "--path", file)


# Then


@then(parsers.parse("the failover reported at least {count:d} lost records"), target_fixture="cost")
def _(town: Town, count: int) -> int:
    _, _, arrived = town.last().stdout.partition("What did not arrive:")
    told = re.search(r"at least (\d+) records", arrived)
    assert told is not None, town.last().stdout
    assert int(told[1]) == count
    return count


@then("repl salvage lists exactly the records that the failover reported as lost")
def _(town: Town, cost: int) -> None:
    done = town.run("salvage", town.name("dc1-to-dc2"), "--path", str(town.topology.file), "--json")
    assert done.returncode == 0, done.stderr
    partitions = json.loads(done.stdout)["partitions"]
    assert sum(one["records"] for one in partitions) == cost
    assert [one["lost"] for one in partitions] == [0, 0]


@then("recovered at dc2 holds exactly these records, each once and in order")
def _(town: Town) -> None:
    assert town.values("recovered", "dc2") == [values[50:] for values in town.values("orders", "dc1")]


@then(parsers.parse("orders at dc2 holds {count:d} records"))
def _(town: Town, count: int) -> None:
    assert sum(map(len, town.values("orders", "dc2"))) == count


@then(parsers.parse("repl read names the origin of {count:d} records of recovered"))
def _(town: Town, count: int) -> None:
    words = ("--path", str(town.topology.file), "--limit", "500", "--json")
    done = town.run("read", "dc2", town.name("recovered"), *words)
    records = [one for one in json.loads(done.stdout)["records"] if one["provenance"] == "headers"]
    hops = {(hop["cluster"], hop["partition"], hop["offset"]) for one in records for hop in one["hops"]}
    assert hops == {("dc1", at % 2, 50 + at // 2) for at in range(count)}


@then("repl locate names the origin of a replayed record of recovered")
def _(town: Town) -> None:
    orders, aside, file = town.name("orders"), town.name("recovered"), str(town.topology.file)
    here = town.values("orders", "dc1")[1]
    there = next(one for one in town.records("recovered", "dc2") if one.value == here[50])
    done = town.run(
        "locate", town.name("dc1-to-dc2"), f"{aside}:1:{there.offset}", "--reverse", "--path", file
    )
    assert f"was replayed by salvage from offset 50 of {orders}-1 at dc1." in done.stdout, done
    done = town.run("locate", town.name("dc1-to-dc2"), f"{orders}:1:50", "--path", file)
    assert f"was replayed by salvage to offset {there.offset} of {aside}-1 at dc2." in done.stdout, done
