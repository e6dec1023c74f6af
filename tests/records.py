"""Writing and reading whole topics with librdkafka, for tests."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

PATIENCE_S = 60.0  # many times what anything takes on a quiet machine: only what never comes is late
_LONGEST_PAUSE_S = 0.5
_PASSING = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE}


class Record(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def create_topic(
    client: Mapping[str, Any],
    topic: str,
    partitions: int = 1,
    replication: int = -1,
    config: Mapping[str, str] | None = None,
) -> None:
    """Returns when every broker knows the topic and who leads its partitions."""
    admin = AdminClient(dict(client))
    wanted = NewTopic(topic, partitions, replication, config=dict(config or {}))
    admin.create_topics([wanted])[topic].result(timeout=PATIENCE_S)
    brokers = [f"{one.host}:{one.port}" for one in admin.list_topics(timeout=PATIENCE_S).brokers.values()]
    for broker in brokers:
        asked = admin if len(brokers) == 1 else AdminClient({**client, "bootstrap.servers": broker})
        wait_for(partial(_led, asked, topic, partitions))


def _led(admin: AdminClient, topic: str, partitions: int) -> bool:
    known = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
    return len(known) == partitions and all(one.leader >= 0 for one in known.values())


def write(client: Mapping[str, Any], topic: str, values: Sequence[bytes], key: bytes | None = None) -> None:
    """Returns when every record was acknowledged."""
    failed: list[object] = []

    def acknowledged(problem: object, _message: object) -> None:
        if problem is not None:
            failed.append(problem)

    producer = Producer({**client, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value=value, key=key, on_delivery=acknowledged)
    left = producer.flush(PATIENCE_S)
    assert not left, f"{left} records were not acknowledged"
    assert not failed, f"{failed[0]}"


def read(client: Mapping[str, Any], topic: str, *, timeout: float = PATIENCE_S) -> list[Record]:
    """Everything that is committed in a topic now, by partition and offset."""
    consumer = Consumer(
        {
            **client,
            "group.id": "reading-for-a-test",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,  # an end is told when a fetch finds nothing
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=timeout).topics[topic].partitions
        # Where records never stop coming, the end is where it was when we began to read.
        marks = {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=timeout)
            for number in partitions
        }
        ends = {number: end for number, (begin, end) in marks.items() if begin < end}
        consumer.assign([TopicPartition(topic, number, marks[number][0]) for number in ends])
        return sorted(_until_ends(consumer, ends, time.monotonic() + timeout))
    finally:
        consumer.close()


def settled(client: Mapping[str, Any], topic: str) -> None:
    """Returns when no transaction is open that has records in the topic now: a coordinator answers the end of
    one before its marks are written, and until then a reader of what is committed ends in front of it."""
    admin = AdminClient(dict(client))
    partitions = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
    ends: dict[int, int] = {}

    def ended() -> bool:
        ends.update(ends or _ends(admin, topic, partitions, IsolationLevel.READ_UNCOMMITTED))
        stable = _ends(admin, topic, partitions, IsolationLevel.READ_COMMITTED)
        return bool(ends) and all(stable.get(one, -1) >= end for one, end in ends.items())

    wait_for(ended)


def _ends(
    admin: AdminClient, topic: str, partitions: Iterable[int], isolation: IsolationLevel
) -> dict[int, int]:
    """Nothing while a broker is away."""
    asked = {TopicPartition(topic, one): OffsetSpec.latest() for one in partitions}
    answers = admin.list_offsets(asked, isolation_level=isolation, request_timeout=PATIENCE_S)
    try:
        return {at.partition: answer.result().offset for at, answer in answers.items()}
    except KafkaException as error:
        if not passing(error.args[0]):
            raise
        return {}


def _until_ends(consumer: Consumer, ends: dict[int, int], deadline: float) -> list[Record]:
    found = []
    while ends:
        assert time.monotonic() < deadline, f"partitions {set(ends)} did not come to their end"
        message = consumer.poll(0.5)
        if message is None:
            continue
        problem = message.error()
        if problem is not None and problem.code() != KafkaError._PARTITION_EOF:
            assert passing(problem), problem
            continue
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        if problem is None and offset < ends.get(partition, 0):
            found.append(Record(partition, offset, message.key(), message.value()))
        else:
            ends.pop(partition, None)
    return found


def passing(problem: KafkaError) -> bool:
    """Said while a broker comes back or a leader moves; the client goes on by itself."""
    return problem.retriable() or problem.code() in _PASSING


def wait_for(true: Callable[[], bool], timeout: float = PATIENCE_S, every: float = 0.05) -> None:
    """Poll until it is true, or fail at the deadline. The longer it takes, the less it is asked: a look may
    cost what is waited for the cores that it wants."""
    deadline = time.monotonic() + timeout
    while not true():
        assert time.monotonic() < deadline, "it did not become true in time"
        time.sleep(every)
        every = max(every, min(every * 1.2, _LONGEST_PAUSE_S))
