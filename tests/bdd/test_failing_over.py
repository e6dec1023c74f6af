"""Features that use the steps of `repl drill`; salvage.feature looks at single records, too."""

import json
from collections.abc import Iterator

import pytest
from pytest_bdd import given, scenarios, then

from planner.drill.scenario_run import ScenarioRun
from planner.kafka.librdkafka import client_settings
from tests.bdd.running import eventually, one_flow, rehearsed
from tests.records import Record, read

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.usefixtures("drill")]

scenarios(*(f"failing_over/{name}.feature" for name in ("losing", "switching", "salvage")))

FLOW = "dc1-to-dc2"
Partitions = dict[int, list[Record]]


@pytest.fixture
def drill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScenarioRun]:
    tree = one_flow()
    tree["topics"].append({"name": "recovered", "cluster": "dc2", "partitions": 2})
    with rehearsed(tree, tmp_path_factory.mktemp("shop")) as run:
        yield run


def partitions(drill: ScenarioRun, cluster: str, topic: str) -> Partitions:
    found: Partitions = {0: [], 1: []}
    for one in read(client_settings(drill.endpoint(cluster)), topic):
        found[one.partition].append(one)
    return found


def lost(drill: ScenarioRun) -> Partitions:
    """The records of each partition of orders that never reached dc2, as dc1 holds them."""
    arrived = partitions(drill, "dc2", "orders")
    return {at: all_[len(arrived[at]) :] for at, all_ in partitions(drill, "dc1", "orders").items()}


@given("the job has seen the end offsets of dc1")
def _(drill: ScenarioRun) -> None:
    """What is said of dc1 where it can't be reached is what the job saw of it last."""
    unreachable = drill.replica.file.with_name(".unreachable")
    unreachable.mkdir()
    text = drill.replica.file.read_text()
    address = drill.replica.topology.clusters["dc1"].bootstrap
    (unreachable / "topology.yaml").write_text(text.replace(address, "127.0.0.1:1"))

    def saw() -> bool:
        done = drill.replica.run("failover", "dc1", "--rehearse", "--path", str(unreachable))
        return "at least 60 records" in done.stdout

    eventually(saw, about="the end of dc1")


@then("recovered at dc2 holds exactly these records, each once and in order")
def _(drill: ScenarioRun) -> None:
    replayed = partitions(drill, "dc2", "recovered")
    assert {at: [one.value for one in some] for at, some in replayed.items()} == {
        at: [one.value for one in some] for at, some in lost(drill).items()
    }
    assert sum(map(len, replayed.values())) == 60


@then("repl read names the origin of each record of recovered")
def _(drill: ScenarioRun) -> None:
    done = drill.replica.run("read", "dc2", "recovered", "--limit", "500", "--json")
    records = [one for one in json.loads(done.stdout)["records"] if one["provenance"] == "headers"]
    hops = [(hop["cluster"], hop["partition"], hop["offset"]) for one in records for hop in one["hops"]]
    there = lost(drill)
    assert sorted(hops) == sorted(("dc1", at, one.offset) for at, some in there.items() for one in some)


@then("repl locate names the origin of a replayed record of recovered")
def _(drill: ScenarioRun) -> None:
    there = partitions(drill, "dc2", "recovered")[1][0].offset
    here = lost(drill)[1][0].offset
    done = drill.replica.run("locate", FLOW, f"recovered:1:{there}", "--reverse")
    assert f"was replayed by salvage from offset {here} of orders-1 at dc1." in done.stdout, done
    done = drill.replica.run("locate", FLOW, f"orders:1:{here}")
    assert f"was replayed by salvage to offset {there} of recovered-1 at dc2." in done.stdout, done
