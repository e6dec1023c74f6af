"""Steps of features/applying/denied.feature: rules of Kafka's own authorizer deny one right at a time."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from pytest_bdd import given, parsers, scenarios, then, when

from runtime.lab.lab import Lab
from tests.bdd.running import Town, eventually, fresh_names, log_in, one_way
from tests.records import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.long]

scenarios("applying/denied.feature")

Rule = tuple[Any, ...]
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
# Of the cluster all but CREATE: a broker that allows that asks for no right on the topic.
EVERYTHING = [
    *((kind, "*", AclOperation.ALL) for kind in (ResourceType.TOPIC, ResourceType.GROUP)),
    (ResourceType.TRANSACTIONAL_ID, "*", AclOperation.ALL),
    *(
        (ResourceType.BROKER, "kafka-cluster", operation)
        for operation in (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER)
    ),
]


@dataclass
class Guarded:
    """`denied` is the rule that denies a right now, with its cluster."""

    town: Town
    denied: list[tuple[str, Rule]] = field(default_factory=list)

    def deny(self, cluster: str, kind: ResourceType, name: str, operation: AclOperation) -> None:
        """Denies this right instead of the one before."""
        self.grant()
        pattern = PREFIXED if kind is ResourceType.TRANSACTIONAL_ID else LITERAL
        rule = (kind, name, pattern, "User:repl", "*", operation, AclPermissionType.DENY)
        self.denied.append((cluster, rule))
        create(self.town.admin(cluster), rule)

    def grant(self) -> None:
        for cluster, rule in self.denied:
            delete(self.town.admin(cluster), rule)
        self.denied.clear()


def create(admin: AdminClient, *rules: Rule) -> None:
    for made in admin.create_acls([AclBinding(*rule) for rule in rules]).values():
        made.result(timeout=PATIENCE_S)
    asked = AclBindingFilter(*rules[-1])
    eventually(lambda: bool(admin.describe_acls(asked).result(timeout=PATIENCE_S)), about="the rules")


def delete(admin: AdminClient, *rules: Rule) -> None:
    for gone in admin.delete_acls([AclBindingFilter(*rule) for rule in rules]).values():
        gone.result(timeout=PATIENCE_S)


@pytest.fixture
def guarded(lab_sasl: Lab, tmp_path: Path) -> Iterator[Guarded]:
    town = one_way(lab_sasl, tmp_path, fresh_names(), "orders", groups={"sync": False}, acls={"sync": True})
    town.topology.topics = []
    log_in(town, "repl", tmp_path)
    rules = [
        (kind, name, LITERAL, "User:repl", "*", operation, AclPermissionType.ALLOW)
        for kind, name, operation in EVERYTHING
    ]
    for cluster in ("dc1", "dc2"):
        create(town.admin(cluster), *rules)
    made = Guarded(town)
    try:
        yield made
    finally:
        made.grant()
        town.over()
        for cluster in ("dc1", "dc2"):
            delete(town.admin(cluster), *rules)


@pytest.fixture
def town(guarded: Guarded) -> Town:
    return guarded.town


@given(parsers.parse("orders at dc1 holds {count:d} records"))
def _(town: Town, count: int) -> None:
    town.make("orders", "dc1", 2)
    town.write("orders", "dc1", count)


@given("a topology copies orders from dc1 to dc2 as a user that may do everything there")
def _(town: Town) -> None:
    town.topology.write()


@when("dc1 denies the user to describe ACLs")
def _(guarded: Guarded) -> None:
    guarded.deny("dc1", ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE)


@when("dc2 denies the user to create orders")
def _(guarded: Guarded) -> None:
    guarded.deny("dc2", ResourceType.TOPIC, guarded.town.name("orders"), AclOperation.CREATE)


@when("dc2 denies the user to write with transactional ids")
def _(guarded: Guarded) -> None:
    guarded.deny("dc2", ResourceType.TRANSACTIONAL_ID, "repl.", AclOperation.WRITE)


@when("dc2 denies the user to alter the settings of orders")
def _(guarded: Guarded) -> None:
    guarded.deny("dc2", ResourceType.TOPIC, guarded.town.name("orders"), AclOperation.ALTER_CONFIGS)


@when("no right is denied any more")
def _(guarded: Guarded) -> None:
    guarded.grant()


@when("the engineer runs repl plan")
def _(town: Town) -> None:
    town.run("plan", str(town.topology.file))


@when("the engineer runs repl apply")
@then("the engineer runs repl apply")
def _(town: Town) -> None:
    town.run("apply", str(town.topology.file), "--auto-approve")


@when("the topology declares retention.ms of orders at dc2 as 3d")
def _(town: Town) -> None:
    town.topology.topic(town.name("orders"), "dc2", partitions=2, config={"retention.ms": "3d"})
    town.topology.write()


@then(parsers.parse("orders at dc2 holds the {count:d} records"))
def _(town: Town, count: int) -> None:
    expected = town.values("orders", "dc1")
    assert sum(map(len, expected)) == count
    eventually(lambda: town.values("orders", "dc2") == expected, about="the records at dc2")
