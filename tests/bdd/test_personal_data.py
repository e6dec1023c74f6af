"""Steps of features/replicating/personal_data.feature: one job for all of its scenarios."""

import json
import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from pytest_bdd import given, scenarios, then, when

from runtime.lab.lab import Lab
from tests.bdd.running import SMALL, Town, eventually, fresh_names, one_way
from tests.records import PATIENCE_S, read

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]

scenarios("replicating/personal_data.feature")

COUNTRIES = ("DE", "FR", "US", "DE", "IT")
PERSONAL = re.compile(rb"@example\.com|4111|\"DE\"")
Customer = dict[str, Any]


@pytest.fixture(scope="module")
def town(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """The scenarios share it, with its job."""
    made = one_way(lab, tmp_path_factory.mktemp("bank"), fresh_names(), "customers")
    yield made
    made.over()


def customers() -> list[Customer]:
    return [
        {
            "id": number,
            "email": f"user{number}@example.com",
            "country": COUNTRIES[number % len(COUNTRIES)],
            "card": f"4111 {number:012}",
            "balance": number / 4,
        }
        for number in range(200)
    ]


@given("a flow of customers from dc1 to dc2 with this transform")
def _(town: Town, docstring: str) -> None:
    town.flow("dc1-to-dc2").update(transform=yaml.safe_load(docstring), job=town.name("into-dc2"))
    town.topology.more["jobs"] = {town.name("into-dc2"): SMALL}


@when("the engineer runs repl plan")
def _(town: Town) -> None:
    town.run("plan", str(town.topology.write()))


@then("the officer reads in the plan")
def _(town: Town, datatable: Sequence[Sequence[str]]) -> None:
    for (line,) in datatable:
        assert line in town.last().stdout, town.last()


@given("200 customers of four countries are written at dc1, and some are deleted again")
def _(town: Town) -> None:
    town.make("customers", "dc1", 2)
    producer = Producer({**town.client("dc1"), "enable.idempotence": True})
    for one in customers():
        key = str(one["id"]).encode()
        producer.produce(town.name("customers"), json.dumps(one).encode(), key, partition=one["id"] % 2)
        if not one["id"] % 10:
            producer.produce(town.name("customers"), None, key, partition=one["id"] % 2)
    assert producer.flush(PATIENCE_S) == 0


@given("the engineer applied the plan")
@when("the engineer applies the plan")
def _(town: Town) -> None:
    town.apply()


@then("each customer of other countries is at dc2 once, in order, and known by the hash of the email address")
def _(town: Town) -> None:
    expected: list[list[Customer]] = [[], []]
    for one in customers():
        if one["country"] != "DE":
            known = {**one, "email": sha256(one["email"].encode()).hexdigest()}
            del known["card"]
            expected[one["id"] % 2].append(known)

    def arrived() -> bool:
        values = town.values("customers", "dc2")
        return [[json.loads(one) for one in part if one is not None] for part in values] == expected

    eventually(arrived, about=town.run("status", str(town.topology.file)).stdout)


@then("each deletion is at dc2 too")
def _(town: Town) -> None:
    deleted = {one.key for one in town.records("customers", "dc2") if one.value is None}
    assert deleted == {str(number).encode() for number in range(0, 200, 10)}


@then("no topic of dc2 holds an email address, a card number or a customer of Germany")
def _(town: Town) -> None:
    """The product's own topics are searched too."""
    topics = town.admin("dc2").list_topics(timeout=PATIENCE_S).topics
    mine = [one for one in topics if one == town.name("customers") or one.startswith("__repl")]
    assert len(mine) > 1
    for topic in mine:
        for record in read(town.client("dc2"), topic):
            assert not PERSONAL.search((record.value or b"") + (record.key or b"")), (topic, record)


@then("repl verify finds no difference, and counts the customers of Germany as filtered")
def _(town: Town) -> None:
    done = town.run("verify", town.name("dc1-to-dc2"), "--path", str(town.topology.file), "--json")
    assert done.returncode == 0, done
    seen = json.loads(done.stdout)
    germans = sum(one["country"] == "DE" for one in customers())
    assert sum(one["filtered"] for one in seen["partitions"]) == germans
    assert seen["equal"]


@when("a customer is written at dc1 whose record is cut in the middle")
def _(town: Town) -> None:
    producer = Producer(town.client("dc1"))
    producer.produce(town.name("customers"), b'{"id": 200, "email": "user200@example.com", "cou', b"200", 0)
    assert producer.flush(PATIENCE_S) == 0


@then("repl status names the record, and says that it does not match the format")
def _(town: Town) -> None:
    def told() -> bool:
        shown = " ".join(town.run("status", str(town.topology.file)).stdout.split())
        return "does not match the transform's format" in shown and f"{town.name('customers')}-0" in shown

    eventually(told)
