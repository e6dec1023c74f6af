"""Steps of features/migrating/waves.feature: one job, as the user repl, at two clusters with SASL."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from pytest_bdd import given, parsers, scenarios, then, when

from runtime.lab.lab import Lab
from tests.bdd.consuming import consumer_of, eat
from tests.bdd.migrating import killed_once_it_says, open_transaction, rights
from tests.bdd.running import Town, eventually, fresh_names, log_in, one_way
from tests.records import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.spark]

scenarios("migrating/waves.feature")

REFUSED = KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def town(lab_sasl: Lab, tmp_path: Path) -> Iterator[Town]:
    name = fresh_names()
    made = one_way(
        lab_sasl, tmp_path, name, "orders", "payments", groups={"every": "300ms", "exclude": [name("audit")]}
    )
    log_in(made, "repl", tmp_path)
    gate = {"for": "1s", "verify": "0%"}
    made.topology.more["cutovers"] = [
        {
            "name": "to-cloud",
            "flows": [name("dc1-to-dc2")],
            "hand_out": [
                {"file": "clients/{wave}.properties"},
                {
                    "file": "gateway-{wave}.json",
                    "format": "confluent_gateway",
                    "endpoint": "localhost:19092",
                },
            ],
            "waves": [
                {"name": "billing", "topics": [name("orders")], "groups": [name("billing")], "gate": gate},
                {"name": "rest", "topics": [".*"], "gate": gate},
            ],
        }
    ]
    with rights(made, "orders", "payments"):
        try:
            made.apply()
            yield made
        finally:
            made.over()


def write_as_app(town: Town, word: str, cluster: str, count: int) -> set[KafkaError | None]:
    """Returns the errors of the records, which are not retried; those without one are noted as written."""
    answers: list[KafkaError | None] = []

    def answered(value: bytes, error: KafkaError | None, _: Message) -> None:
        answers.append(error)
        if error is None:
            town.written.setdefault((word, cluster), []).append(value)

    client = town.lab.clusters[cluster].client_of("app")
    producer = Producer({**client, "retries": 0, "message.timeout.ms": int(PATIENCE_S * 1000)})
    for _ in range(count):
        number = next(town.numbers)
        value = f"{cluster}-{number}".encode()
        producer.produce(town.name(word), value, partition=number % 2, on_delivery=partial(answered, value))
    producer.flush(2 * PATIENCE_S)
    assert len(answers) == count
    return set(answers)


# Given


@given("orders and payments are copied from dc1 to dc2, in the waves billing and rest")
def _(town: Town) -> None:
    assert town.topology.file.exists()


@given("orders and payments are copied from dc1 to dc2 by a flow each, in the waves billing and rest")
def _(town: Town) -> None:
    (flow,) = town.topology.more["flows"]
    second = {"name": town.name("second"), "topics": {"include": [town.name("payments")]}}
    town.topology.more["flows"] = [flow | {"topics": {"include": [town.name("orders")]}}, flow | second]
    town.topology.more["cutovers"][0]["flows"].append(town.name("second"))
    town.apply()


@given("the gates compare every record")
def _(town: Town) -> None:
    for wave in town.topology.more["cutovers"][0]["waves"]:
        wave["gate"] = {**wave["gate"], "verify": "100%"}
    town.apply()


@given(parsers.parse("app writes {orders:d} records to orders and {payments:d} to payments at dc1"))
def _(town: Town, orders: int, payments: int) -> None:
    eventually(lambda: write_as_app(town, "orders", "dc1", 1) == {None}, about="the rules of app")
    assert write_as_app(town, "orders", "dc1", orders - 1) == {None}
    assert write_as_app(town, "payments", "dc1", payments) == {None}


@given(parsers.parse("the group billing has read {count:d} records of orders at dc1"), target_fixture="read")
def _(town: Town, count: int) -> list[bytes]:
    consumer = consumer_of(town, "billing", "dc1")
    read = eat(consumer, count)
    consumer.close()
    return read


@given(parsers.parse("the group audit, which the flow excludes, has read {count:d} records of orders at dc1"))
def _(town: Town, count: int) -> None:
    consumer = consumer_of(town, "audit", "dc1")
    eat(consumer, count)
    consumer.close()


# When


@when("the engineer runs repl promote --rehearse")
def _(town: Town) -> None:
    town.run("promote", town.name("dc1-to-dc2"), "--rehearse", "--path", str(town.topology.file))


@when("the engineer runs repl cutover to-cloud --timeout 4s while a transaction is open in orders")
def _(town: Town) -> None:
    with open_transaction(town, "orders"):
        town.engineer("cutover", "to-cloud", "--timeout", "4s")


@when(parsers.re(r'repl cutover (?P<words>to-cloud[^"]*) is killed once it says "(?P<text>[^"]*)"$'))
def _(town: Town, words: str, text: str) -> None:
    killed_once_it_says(town, text, words)


@when(parsers.re(r"a super user writes (?P<count>\d+) records? to (?P<word>\w+) at (?P<cluster>dc\d)$"))
def _(town: Town, count: str, word: str, cluster: str) -> None:
    town.write(word, cluster, int(count))


# Then


@then(parsers.parse("app is refused at {word} at {cluster}"))
def _(town: Town, word: str, cluster: str) -> None:
    (refusal,) = write_as_app(town, word, cluster, 1)
    assert refusal is not None
    assert refusal.code() == REFUSED, refusal


@then(parsers.parse("app writes {count:d} records to {word} at {cluster}"))
def _(town: Town, count: int, word: str, cluster: str) -> None:
    eventually(lambda: write_as_app(town, word, cluster, 1) == {None}, about=word)
    assert write_as_app(town, word, cluster, count - 1) == {None}


@given(parsers.parse("the records of {word} are copied"))
@then(parsers.parse("new records of {word} arrive at dc2"))
def _(town: Town, word: str) -> None:
    eventually(partial(town.same, word), about=word)


@then(parsers.parse("{word} at {cluster} holds every record that was written, each once"))
def _(town: Town, word: str, cluster: str) -> None:
    every = sorted([*town.written[word, "dc1"], *town.written[word, "dc2"]])
    assert sorted(value or b"" for values in town.values(word, cluster) for value in values) == every


@then(parsers.parse("the group billing reads exactly the other records of orders at {cluster}"))
def _(town: Town, read: list[bytes], cluster: str) -> None:
    every = [*town.written["orders", "dc1"], *town.written["orders", "dc2"]]
    consumer = consumer_of(town, "billing", cluster)
    rest = eat(consumer, len(every) - len(read))
    consumer.close()
    assert sorted([*read, *rest]) == sorted(every)


@then(parsers.parse("repl status shows {moved} as moved and {waiting} as waiting"))
def _(town: Town, moved: str, waiting: str) -> None:
    waves = {wave.wave: wave for wave in town.status().waves}
    assert (waves[moved].state, waves[waiting].state) == ("moved", "waiting")
    pause_ms = waves[moved].pause_ms
    assert pause_ms is not None
    assert 0 < pause_ms < 60_000
    assert waves[waiting].pause_ms is None


@then("the handed-out files of billing lead clients to dc2")
def _(town: Town) -> None:
    folder, dc2 = town.topology.file.parent, town.lab.clusters["dc2"]
    lines = (folder / "clients" / "billing.properties").read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    assert settings["bootstrap.servers"] == dc2.bootstrap
    assert settings["security.protocol"] == "SASL_PLAINTEXT"
    assert not [key for key in settings if "password" in key or "jaas" in key]
    gateway = json.loads((folder / "gateway-billing.json").read_text())["gateway"]
    (domain,) = gateway["streamingDomains"]
    assert domain["kafkaCluster"]["nodeIdRanges"] == [{"name": "brokers", "start": 1, "end": 1}]
    assert [route["endpoint"] for route in gateway["routes"]] == ["localhost:19092"]
