"""Steps of features/replicating/mirror_maker.feature, on a lab of its own: all topics are copied."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from pytest_bdd import given, parsers, scenarios, then, when

from tests.bdd.running import Town, eventually
from tests.labs import running_lab, spec
from tests.processes import kill_together
from tests.records import PATIENCE_S
from tests.topologies import at

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]

scenarios("replicating/mirror_maker.feature")

CLUSTERS = ("paris", "tokyo")
RETENTION = "retention.ms"
TWO_DAYS = "172800000"
EXCLUDES = {"paris": r", exclude: ['(.*\.)?tokyo\..*']", "tokyo": r", exclude: ['(.*\.)?paris\..*']"}


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    """Jobs have the names of the clusters, and topics those of the scenario."""
    paris = spec("paris", properties={"log.retention.ms": TWO_DAYS})
    with running_lab(tmp_path / "lab", paris, spec("tokyo")) as lab:
        topology = at(lab, "mm2", tmp_path, ())
        made = Town(lab, topology, tmp_path / "home", lambda word: word.removeprefix("into-"))
        try:
            yield made
        finally:
            kill_together(one for name in CLUSTERS for one in made.processes(name).values())


def file(town: Town) -> Path:
    return town.topology.file


@given("orders and refunds at paris and returns at tokyo hold records")
def _(town: Town) -> None:
    for word, cluster in (("orders", "paris"), ("refunds", "paris"), ("returns", "tokyo")):
        town.make(word, cluster, 2)
        town.write(word, cluster, 20)


@given("an mm2.properties by which paris and tokyo copy all topics to each other")
def _(town: Town) -> None:
    addresses = {name: town.lab.clusters[name].bootstrap for name in CLUSTERS}
    lines = [
        "clusters = paris, tokyo",
        *(f"{name}.bootstrap.servers = {address}" for name, address in addresses.items()),
        "paris->tokyo.enabled = true",
        "tokyo->paris.enabled = true",
        "sync.topic.acls.enabled = false",
        "refresh.topics.interval.seconds = 1",
    ]
    file(town).with_name("mm2.properties").write_text("\n".join(lines))


@when("the engineer imports it and applies the file as it was written")
def _(town: Town) -> None:
    town.succeeds("import", "--mm2", str(file(town).with_name("mm2.properties")), "-o", str(file(town)))
    apply(town)


@when("applies it")
@when("the engineer applies it")
def apply(town: Town) -> None:
    town.succeeds("apply", str(file(town)), "--auto-approve")


@when("the engineer removes exclude from both flows, and adds configs: {sync: all} to both")
def _(town: Town) -> None:
    text = file(town).read_text()
    for exclude in EXCLUDES.values():
        assert exclude in text
        text = text.replace(exclude, "")
    rename = '    rename: "{source}.{topic}"\n'
    assert text.count(rename) == len(CLUSTERS)
    file(town).write_text(text.replace(rename, rename + "    configs: {sync: all}\n"))


@when("the engineer adds on_source_delete: delete to both flows")
def _(town: Town) -> None:
    text, line = file(town).read_text(), "    configs: {sync: all}\n"
    assert text.count(line) == len(CLUSTERS)
    file(town).write_text(text.replace(line, line + "    on_source_delete: delete\n"))


@when(parsers.parse("an operator sets {key} of the broker at paris to {value}"))
def _(town: Town, key: str, value: str) -> None:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    brokers = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    admin = town.admin("paris")
    admin.incremental_alter_configs([brokers])[brokers].result(timeout=PATIENCE_S)


@when("the team of paris creates shipments and writes to it")
def _(town: Town) -> None:
    town.make("shipments", "paris", 1)
    town.write("shipments", "paris", 20)


@when("the team of paris deletes refunds")
def _(town: Town) -> None:
    town.delete("refunds", "paris")


def arrived(town: Town, word: str, source: str, there: str) -> None:
    expected, mirror = town.values(word, source), f"{source}.{word}"
    assert sum(map(len, expected)) == 20
    eventually(
        lambda: town.partitions(mirror, there) > 0 and town.values(mirror, there) == expected, about=mirror
    )


@then("paris.orders and paris.refunds at tokyo hold the records of paris, each once and in order")
def _(town: Town) -> None:
    for word in ("orders", "refunds"):
        arrived(town, word, "paris", "tokyo")


@then("tokyo.returns at paris holds the records of tokyo, each once and in order")
def _(town: Town) -> None:
    arrived(town, "returns", "tokyo", "paris")


@then("paris.shipments at tokyo holds the records of paris, each once and in order")
def _(town: Town) -> None:
    arrived(town, "shipments", "paris", "tokyo")


@then("retention.ms of paris.orders at tokyo is not that of paris")
def _(town: Town) -> None:
    assert town.config("orders", "paris", RETENTION) == TWO_DAYS
    assert town.config("paris.orders", "tokyo", RETENTION) != TWO_DAYS


@then("retention.ms of paris.orders at tokyo is that of paris")
def _(town: Town) -> None:
    assert town.config("paris.orders", "tokyo", RETENTION) == TWO_DAYS


@then(parsers.parse("retention.ms of paris.orders at tokyo becomes {value}"))
def _(town: Town, value: str) -> None:
    eventually(lambda: town.config("paris.orders", "tokyo", RETENTION) == value, about="retention.ms follows")


@then("paris holds no mirror of a mirror, and neither does tokyo")
def _(town: Town) -> None:
    held = {
        name: {one for one in town.admin(name).list_topics(timeout=PATIENCE_S).topics if not is_own(one)}
        for name in CLUSTERS
    }
    assert held == {
        "paris": {"orders", "refunds", "shipments", "tokyo.returns"},
        "tokyo": {"returns", "paris.orders", "paris.refunds", "paris.shipments"},
    }


def is_own(topic: str) -> bool:
    return topic.startswith("__")


@then("the plan says that paris.refunds at tokyo will be destroyed, and no other topic")
def _(town: Town) -> None:
    done = town.run("plan", str(file(town)))
    destroyed = [line for line in done.stdout.splitlines() if "will be destroyed" in line]
    assert len(destroyed) == 1, done.stdout
    assert "topic.tokyo.paris.refunds" in destroyed[0]


@then("paris.refunds at tokyo is gone")
def _(town: Town) -> None:
    eventually(lambda: town.partitions("paris.refunds", "tokyo") == 0, about="paris.refunds")
