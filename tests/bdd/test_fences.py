"""Steps of features/migrating/fences.feature: one job, at two clusters without an authorizer."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from pytest_bdd import given, parsers, scenarios, then, when

from runtime.lab.lab import Lab
from tests.bdd.running import Town, eventually, fresh_names, one_way
from tests.labs import run_tool
from tests.records import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.spark]

scenarios("migrating/fences.feature")


@pytest.fixture
def town(lab: Lab, tmp_path: Path) -> Iterator[Town]:
    name = fresh_names()
    made = one_way(lab, tmp_path, name, "orders", "payments", groups={"every": "300ms"})
    gate = {"for": "1s", "verify": "0%"}
    made.topology.more["cutovers"] = [
        {
            "name": "to-cloud",
            "flows": [name("dc1-to-dc2")],
            "fence": "quota",
            "waves": [
                {"name": "billing", "topics": [name("orders")], "producers": [name("shop")], "gate": gate},
                {"name": "rest", "topics": [".*"], "producers": [name("desk")], "gate": gate},
            ],
        }
    ]
    try:
        made.apply()
        yield made
    finally:
        made.over()


class Shop:
    """A producer in a thread of its own, which writes until it is closed. It retries nothing."""

    def __init__(self, town: Town) -> None:
        self.acknowledged: list[bytes] = []
        settings = {**town.client("dc1"), "client.id": town.name("shop"), "retries": 0, "linger.ms": 5}
        self._producer = Producer(settings)
        self._topic = town.name("orders")
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._write, name="shop")
        self._thread.start()

    def _write(self) -> None:
        number = 0
        while not self._ends.wait(0.01):
            value = f"shop-{number}".encode()
            self._producer.produce(self._topic, value, partition=number % 2, on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.append(message.value() or b"")

    def close(self) -> None:
        """Ends it. Records that still wait in the producer are given up."""
        self._ends.set()
        self._thread.join(PATIENCE_S)
        self._producer.purge()
        self._producer.flush(PATIENCE_S)


@given("orders and payments are copied from dc1 to dc2, in the waves billing and rest")
def _(town: Town) -> None:
    town.write("orders", "dc1", 20)
    town.write("payments", "dc1", 20)


@when(parsers.parse("the engineer runs repl cutover to-cloud with fence: {fence}"))
def _(town: Town, fence: str) -> None:
    """A fence of rules denies principals: shop and desk are client ids, so everyone is denied."""
    file = town.topology.file
    before = file.read_text()
    declared = json.loads(before)
    (cutover,) = declared["cutovers"]
    cutover["fence"] = fence
    for wave in cutover["waves"] if fence == "acl" else ():
        del wave["producers"]
    file.write_text(json.dumps(declared, indent=1))
    town.engineer("cutover", "to-cloud")
    if fence == "acl":
        file.write_text(before)


@when("shop writes to orders at dc1 without a pause", target_fixture="shop")
def _(town: Town, request: pytest.FixtureRequest) -> Shop:
    shop = Shop(town)
    request.addfinalizer(shop.close)
    eventually(lambda: len(shop.acknowledged) > 100, about="records of shop")
    return shop


@then("the client id shop may write 1 byte a second at dc1")
def _(town: Town) -> None:
    shown = run_tool(
        town.lab,
        "dc1",
        "ConfigCommand",
        "--describe",
        "--entity-type",
        "clients",
        "--entity-name",
        town.name("shop"),
    )
    assert "producer_byte_rate=1.0" in shown


@when("the records of orders that stayed at dc1 are replayed")
def _(town: Town, shop: Shop) -> None:
    shop.close()
    town.engineer("salvage", town.name("dc1-to-dc2"), "--replay")
    assert town.last().returncode == 0, town.last()


@then("orders at dc2 holds every record that shop wrote, each once")
def _(town: Town, shop: Shop) -> None:
    copied = [value for values in town.values("orders", "dc2") for value in values]
    at_source = [value for values in town.values("orders", "dc1") for value in values]
    assert len(copied) == len(set(copied))
    assert set(copied) == set(at_source)
    assert set(shop.acknowledged) <= set(copied)
