"""Steps of features/failing_over/protection.feature: one job for each login, which runs as the user repl."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from pytest_bdd import given, scenarios, then, when

from runtime.lab.cluster import Security
from runtime.lab.lab import Lab
from tests.bdd.running import Town, eventually, fresh_names, log_in, one_way, only
from tests.conftest import MakeLab
from tests.labs import spec
from tests.records import PATIENCE_S, coordinators_ready, create_topic

pytestmark = [pytest.mark.integration, pytest.mark.spark]

scenarios("failing_over/protection.feature")

WORDS = ("orders", "payments")
AUDITOR, CLERK = "User:auditor", "User:clerk"
REFUSED = KafkaError.TOPIC_AUTHORIZATION_FAILED
EVERY_RULE: tuple[Any, ...] = (
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)
# With the default mapping, the principal is the certificate's distinguished name.
OPEN_TLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "ssl.principal.mapping.rules": "DEFAULT",
    "super.users": "User:CN=admin;User:CN=broker",
}


@dataclass
class Guarded:
    """`before` are the rules at dc2 without the flow; `made` are those that are removed at the end."""

    town: Town
    before: set[AclBinding] = field(default_factory=set)
    made: list[AclBinding] = field(default_factory=list)
    plan: str = ""

    def allow(self, cluster: str, *bindings: AclBinding) -> None:
        admin = self.town.admin(cluster)  # lives until the answer is there
        for one in admin.create_acls(list(bindings)).values():
            one.result(timeout=PATIENCE_S)
        self.made += bindings

    def rules(self) -> set[AclBinding]:
        every = AclBindingFilter(*EVERY_RULE)
        admin = self.town.admin("dc2")
        return set(admin.describe_acls(every).result(timeout=PATIENCE_S))

    def write_as(self, user: str, topic: str) -> KafkaError | None:
        """Returns the error of one record, which is not retried."""
        answers: list[KafkaError | None] = []

        def answered(error: KafkaError | None, _: Message) -> None:
            answers.append(error)

        client = self.town.lab.clusters["dc2"].client_of(user)
        producer = Producer({**client, "acks": "all", "log_level": 2})
        producer.produce(topic, value=b"foreign", on_delivery=answered)
        assert producer.flush(PATIENCE_S) == 0
        return answers[0]

    def may_write(self, user: str, words: Iterable[str]) -> bool:
        return all(self.write_as(user, self.town.name(word)) is None for word in words)


@pytest.fixture
def scene(own_lab: MakeLab) -> Iterator[list[Guarded]]:
    """Made by the first step; what it left behind goes at the end, before its clusters do."""
    made: list[Guarded] = []
    yield made
    for one in made:
        if one.town.topology.file.exists():
            one.town.over()
        removed = [only(rule) for rule in dict.fromkeys(one.made)]
        for cluster in ("dc1", "dc2") if removed else ():
            admin = one.town.admin(cluster)
            for answer in admin.delete_acls(removed).values():
                answer.result(timeout=PATIENCE_S)


@pytest.fixture
def guarded(scene: list[Guarded]) -> Guarded:
    return scene[0]


@pytest.fixture
def town(guarded: Guarded) -> Town:
    return guarded.town


def allowing(
    principal: str,
    operation: AclOperation,
    name: str,
    kind: ResourceType = ResourceType.TOPIC,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> AclBinding:
    return AclBinding(kind, name, pattern, principal, "*", operation, AclPermissionType.ALLOW)


def _scene(lab: Lab, folder: Path, name: Callable[[str], str], principal: dict[str, Any]) -> Guarded:
    """The job and the commands come as the user repl."""
    town = one_way(lab, folder, name, *WORDS, protect="acl", groups={"sync": False})
    log_in(town, "repl", folder)
    town.topology.clusters["dc2"] |= principal
    return Guarded(town)


@given("two clusters with SASL")
def _(scene: list[Guarded], lab_sasl: Lab, tmp_path: Path) -> None:
    made = _scene(lab_sasl, tmp_path, fresh_names(), {})
    (flow,) = made.town.topology.more["flows"]
    flow["topics"]["include"].append(made.town.name("refunds"))
    flow["acls"] = {"sync": True}
    scene.append(made)
    everything = [
        allowing("User:repl", AclOperation.ALL, "*"),
        allowing("User:repl", AclOperation.ALL, "*", ResourceType.GROUP),
        allowing("User:repl", AclOperation.ALL, "*", ResourceType.TRANSACTIONAL_ID),
        allowing("User:repl", AclOperation.ALL, "kafka-cluster", ResourceType.BROKER),
    ]
    for cluster in ("dc1", "dc2"):
        made.allow(cluster, *everything)


@given("a rule at dc2 lets app write orders and refunds")
def _(guarded: Guarded) -> None:
    names = (guarded.town.name(word) for word in ("orders", "refunds"))
    guarded.allow("dc2", *(allowing("User:app", AclOperation.WRITE, name) for name in names))


@given("a rule at dc2 lets everyone write all topics that begin as payments does")
def _(guarded: Guarded) -> None:
    prefix = guarded.town.name("payments")
    rule = allowing("User:*", AclOperation.WRITE, prefix, pattern=ResourcePatternType.PREFIXED)
    guarded.allow("dc2", rule)
    create_topic(guarded.town.client("dc2"), f"{prefix}-own")
    eventually(lambda: guarded.write_as("stranger", f"{prefix}-own") is None)


@given("a rule at dc1 lets clerk read orders")
def _(guarded: Guarded) -> None:
    guarded.allow("dc1", allowing(CLERK, AclOperation.READ, guarded.town.name("orders")))


@given("two clusters with TLS, where dc2 allows everyone what no rule speaks of")
def _(scene: list[Guarded], own_lab: MakeLab, tmp_path: Path) -> None:
    dc2 = spec("dc2", security=Security.TLS, properties=OPEN_TLS)
    lab = own_lab(spec("dc1"), dc2)
    for cluster in lab.clusters.values():
        coordinators_ready(cluster.client)
    declared = {"principal": "User:CN=repl", "allow_everyone_if_no_acl_found": True}
    scene.append(_scene(lab, tmp_path, fresh_names(), declared))


@when("orders and payments are copied from dc1 to dc2 with protect: acl")
def _(guarded: Guarded) -> None:
    town = guarded.town
    guarded.before = guarded.rules()
    guarded.plan = town.said(town.run("plan", str(town.topology.write())).stdout)
    town.apply()


@then("the plan said that the rule of payments is replaced")
def _(guarded: Guarded) -> None:
    rule = "allow.User:*.WRITE.topic.payments*"
    text = " ".join(guarded.plan.split())
    assert f"- acl.dc2.{rule}" in text, guarded.plan
    assert f"protect: acl replaces {rule} at dc2, by which everyone may write" in text, guarded.plan
    assert "User:repl gets the rule instead; everyone may go on writing the topic payments-own" in text


@then("the plan said that clerk may read orders at dc2")
def _(guarded: Guarded) -> None:
    assert f"+ acl.dc2.allow.{CLERK}.READ.topic.orders" in guarded.plan


@then("rules at dc2 let clerk read orders")
def _(guarded: Guarded) -> None:
    assert _of(guarded, CLERK) == {AclOperation.READ}


@then("app is refused at orders and at payments at dc2")
def _(guarded: Guarded) -> None:
    for word in WORDS:
        error = guarded.write_as("app", guarded.town.name(word))
        assert error is not None, word
        assert error.code() == REFUSED, error


@then("new records of orders and payments arrive at dc2")
def _(town: Town) -> None:
    for word in WORDS:
        town.write(word, "dc1", 4)
        eventually(partial(town.same, word), about=word)


@then("stranger writes another topic that begins as payments does")
def _(guarded: Guarded) -> None:
    assert guarded.write_as("stranger", f"{guarded.town.name('payments')}-own") is None


@when("the topic refunds is created at dc1")
def _(town: Town) -> None:
    town.make("refunds", "dc1", 1)


@then("app is refused at refunds at dc2 as soon as it is there")
def _(guarded: Guarded) -> None:
    town = guarded.town
    eventually(lambda: town.partitions("refunds", "dc2") == 1, about="refunds")
    error = guarded.write_as("app", town.name("refunds"))
    assert error is not None
    assert error.code() == REFUSED, error


def _of(guarded: Guarded, *principals: str) -> set[Any]:
    return {one.operation for one in guarded.rules() if one.principal in principals}


@when("a rule at dc1 allows auditor everything on orders")
def _(guarded: Guarded) -> None:
    guarded.allow("dc1", allowing(AUDITOR, AclOperation.ALL, guarded.town.name("orders")))


@then("rules at dc2 let auditor read and describe orders, and none lets it write")
def _(guarded: Guarded) -> None:
    wanted = {AclOperation.READ, AclOperation.DESCRIBE}
    eventually(lambda: _of(guarded, AUDITOR) == wanted, about="rules of auditor")


@when("the rules of auditor and clerk are removed at dc1")
def _(guarded: Guarded) -> None:
    admin = guarded.town.admin("dc1")
    gone = [only(one) for one in guarded.made if one.principal in (AUDITOR, CLERK)]
    for answer in admin.delete_acls(gone).values():
        answer.result(timeout=PATIENCE_S)


@then("no rule at dc2 names auditor or clerk")
def _(guarded: Guarded) -> None:
    eventually(lambda: not _of(guarded, AUDITOR, CLERK), about="rules of auditor and clerk")


@when("the engineer promotes the flow")
def _(town: Town) -> None:
    town.engineer("promote", town.name("dc1-to-dc2"))


@then("app writes orders and payments at dc2")
def _(guarded: Guarded) -> None:
    eventually(lambda: guarded.may_write("app", WORDS))


@then("app writes orders, payments and refunds at dc2")
def _(guarded: Guarded) -> None:
    eventually(lambda: guarded.may_write("app", (*WORDS, "refunds")))


@then("the rules at dc2 are those from before")
def _(guarded: Guarded) -> None:
    assert guarded.rules() == guarded.before
