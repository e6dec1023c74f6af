"""What the stories of features/migrating share: the rights of their users, and commands that are killed."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.bdd.running import Town, only
from tests.commands import begin
from tests.records import PATIENCE_S

EVERYTHING = (
    (ResourceType.TOPIC, "*"),
    (ResourceType.GROUP, "*"),
    (ResourceType.TRANSACTIONAL_ID, "*"),
    (ResourceType.BROKER, "kafka-cluster"),
)


def _allowed(principal: str, kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    literal = ResourcePatternType.LITERAL
    return AclBinding(kind, name, literal, principal, "*", operation, AclPermissionType.ALLOW)


@contextmanager
def rights(town: Town, *words: str) -> Iterator[None]:
    """At both clusters repl may do everything, and app write and read these topics, in any group."""
    rules = [_allowed("User:repl", kind, every, AclOperation.ALL) for kind, every in EVERYTHING]
    rules.append(_allowed("User:app", ResourceType.GROUP, "*", AclOperation.READ))
    rules += (
        _allowed("User:app", ResourceType.TOPIC, town.name(word), operation)
        for word in words
        for operation in (AclOperation.WRITE, AclOperation.READ)
    )
    filters = list(map(only, rules))
    admins = [town.admin(cluster) for cluster in ("dc1", "dc2")]
    for admin in admins:
        for answer in admin.create_acls(rules).values():
            answer.result(timeout=PATIENCE_S)
    try:
        yield
    finally:
        for admin in admins:
            for removed in admin.delete_acls(filters).values():
                removed.result(timeout=PATIENCE_S)


@contextmanager
def open_transaction(town: Town, word: str) -> Iterator[None]:
    """A super user's transaction stays open meanwhile; then it is aborted."""
    producer = Producer({**town.client("dc1"), "transactional.id": town.name("late")})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(town.name(word), b"never")
    producer.flush(PATIENCE_S)
    yield
    producer.abort_transaction(PATIENCE_S)


def killed_once_it_says(town: Town, text: str, words: str = "to-cloud") -> None:
    """Runs repl cutover, and kills it with -9 when it has reported this."""
    arguments = ["cutover", *words.split(), "--path", str(town.topology.file), "--auto-approve"]
    process = begin(*arguments, env={"REPL_HOME": str(town.home)})
    assert process.stderr is not None
    reported = ""
    while text not in reported:
        line = process.stderr.readline()
        assert line, reported
        reported += line
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)
