"""The checker on real brokers: what it writes is there, and a copy forged on purpose is caught."""

import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Message, Producer

from runtime.lab.lab import Lab
from tests import checker
from tests.checker import Kind
from tests.conftest import MakeLab
from tests.labs import spec
from tests.records import create_topic

pytestmark = pytest.mark.integration


def create(client: dict[str, Any], topic: str) -> None:
    create_topic(client, topic, 3, config=checker.TOPIC_CONFIG)


class Original(NamedTuple):
    topic: str
    written: checker.Written
    messages: list[Message]


class Keeping(checker.Reader):
    """Keeps the records themselves too."""

    def __init__(self, client: dict[str, Any], topic: str) -> None:
        super().__init__(client, topic)
        self.messages: list[Message] = []

    def _take(self, message: Message) -> None:
        super()._take(message)
        if message.error() is None:
            self.messages.append(message)


@pytest.fixture(scope="module")
def original(lab: Lab) -> Original:
    source, topic = lab.clusters["dc1"].client, f"original-{uuid.uuid4().hex[:8]}"
    create(source, topic)
    written = checker.write(source, topic, checker.Spec(records=400, large_every=200, huge_every=400))
    with Keeping(source, topic) as reader:
        reader.drain()
    return Original(topic, written, reader.messages)


def send(client: dict[str, Any], topic: str, messages: list[Message]) -> None:
    """A copy a record at a time."""
    producer = Producer({**client, "message.max.bytes": 8_000_000, "enable.idempotence": True})
    for one in messages:
        headers: Any = one.headers()
        _, timestamp = one.timestamp()
        producer.produce(
            topic, one.value(), one.key(), one.partition() or 0, timestamp=timestamp, headers=headers or []
        )
        producer.poll(0)
    assert producer.flush(120) == 0


def nothing(messages: list[Message]) -> None:
    """A true copy."""


def lose(messages: list[Message]) -> None:
    del messages[len(messages) // 2]


def double(messages: list[Message]) -> None:
    messages.append(messages[len(messages) // 2])


def swap(messages: list[Message]) -> None:
    first = next(
        at for at in range(len(messages)) if messages[at].partition() == messages[at + 1].partition()
    )
    messages[first], messages[first + 1] = messages[first + 1], messages[first]


@pytest.mark.parametrize(
    ("forge", "expected"),
    [(nothing, {}), (lose, {Kind.MISSING: 1}), (double, {Kind.DOUBLED: 1}), (swap, {Kind.REORDERED: 1})],
)
def test_a_forged_copy_is_caught(
    lab: Lab,
    original: Original,
    fresh: Callable[[str], str],
    forge: Callable[[list[Message]], None],
    expected: dict[Kind, int],
):
    source, there, topic = lab.clusters["dc1"].client, lab.clusters["dc2"].client, fresh("checked")
    create(there, topic)
    messages = list(original.messages)
    forge(messages)
    send(there, topic, messages)
    report = checker.compare(source, there, original.topic, topic, written=original.written, patience=2)
    assert {kind: report.count(kind) for kind in Kind if report.count(kind)} == expected, report
    assert report.records == original.written.records
    assert original.written.unknown == 0
    assert sum(map(len, original.written.aborted.values())) > 0


def test_a_writer_in_the_background_knows_what_it_wrote(lab: Lab, fresh: Callable[[str], str]):
    source, topic = lab.clusters["dc1"].client, fresh("background")
    create(source, topic)
    with checker.writing(source, topic, checker.Spec(records=10**9, rate=400)) as writer:
        writer.wait_for(200)
    written = writer.written
    report = checker.compare(source, source, topic, written=written)
    assert report.clean, report
    assert report.records == written.records


@pytest.mark.long
def test_a_writer_outlives_its_broker_and_still_knows(own_lab: MakeLab):
    lab = own_lab(spec("dc1"))
    source = lab.clusters["dc1"].client
    create(source, "orders")
    with checker.writing(source, "orders", checker.Spec(records=10**9, rate=300)) as writer:
        for records in (100, 250):
            writer.wait_for(records)
            lab.kill("dc1")
            lab.start("dc1")
        writer.wait_for(400)
    report = checker.compare(source, source, "orders", written=writer.written)
    assert report.clean, report
    assert report.records >= writer.written.records
