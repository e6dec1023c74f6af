"""Writing and reading whole topics with librdkafka, for tests."""

import inspect
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,  # noqa: TID251 - commits alone
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

PATIENCE_S = 120.0  # many times what anything takes on a quiet machine: only what never comes is late
_LONGEST_PAUSE_S = 0.5
_PASSING = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._RESOLVE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
}
_NOT_YET = {
    *_PASSING,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._DESTROY_BROKER,
    KafkaError._NOENT,  # librdkafka asked a broker that names no leader yet
}
_COORDINATING = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}


class Record(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def admin_of(client: Mapping[str, Any]) -> AdminClient:
    """Returns an AdminClient that callers share: each new one opens connections and asks for the metadata.

    It may have lost its broker, and then connects again; to learn what one broker knows, make a new one.
    """
    return _admin(tuple(sorted(client.items())))


@lru_cache(maxsize=4)  # of brokers that are gone, only so many are still tried
def _admin(client: tuple[tuple[str, Any], ...]) -> AdminClient:
    return AdminClient({"log_level": 2, "reconnect.backoff.max.ms": 500, **dict(client)})


def create_topic(
    client: Mapping[str, Any],
    topic: str,
    partitions: int = 1,
    replication: int = -1,
    config: Mapping[str, str] | None = None,
) -> None:
    """Returns when every broker knows the topic and who leads its partitions."""
    admin = admin_of(client)
    wanted = NewTopic(topic, partitions, replication, config=dict(config or {}))
    dropped = False

    def made() -> bool:
        nonlocal dropped
        try:
            admin.create_topics([wanted])[topic].result(timeout=PATIENCE_S)
        except KafkaException as failure:
            # librdkafka drops a bootstrap connection once it knows the broker's id, and requests with it.
            if failure.args[0].code() == KafkaError._DESTROY_BROKER:
                dropped = True
                return False
            if not (dropped and failure.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS):
                raise
        return True

    wait_for(made)
    known_everywhere(client, {topic: partitions})


def recreate_topic(client: Mapping[str, Any], topic: str, partitions: int = 1) -> None:
    """Deletes a topic and creates it again. With ZooKeeper, a name is free some time later."""
    admin = admin_of(client)
    admin.delete_topics([topic])[topic].result(timeout=PATIENCE_S)

    def made() -> bool:
        wanted = NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})
        try:
            admin.create_topics([wanted])[topic].result(timeout=PATIENCE_S)
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    wait_for(made)
    known_everywhere(client, {topic: partitions})


def alter_topic(client: Mapping[str, Any], topic: str, config: Mapping[str, str]) -> None:
    changes = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
    admin_of(client).incremental_alter_configs([resource])[resource].result(PATIENCE_S)


def commit_group(
    client: Mapping[str, Any], group: str, offsets: Mapping[tuple[str, int], int], metadata: str = ""
) -> None:
    """Commits as an administrator does, where nobody is connected: no member, no leader epoch."""
    wanted = [TopicPartition(*at, offset, metadata=metadata) for at, offset in offsets.items()]
    asked = ConsumerGroupTopicPartitions(group, wanted)
    for done in admin_of(client).alter_consumer_group_offsets([asked]).values():
        for one in done.result(PATIENCE_S).topic_partitions:
            assert one.error is None, one


def group_offsets(client: Mapping[str, Any], group: str) -> dict[tuple[str, int], int]:
    """All that the group has committed, as its consumers read it.

    librdkafka's admin client ends the process where a broker answers NOT_COORDINATOR.
    """
    consumer = Consumer({**client, "group.id": group, "enable.auto.commit": False, "log_level": 2})
    try:
        topics = consumer.list_topics(timeout=PATIENCE_S).topics
        places = [
            TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions
        ]
        committed = consumer.committed(places, timeout=PATIENCE_S)
        return {(place.topic, place.partition): place.offset for place in committed if place.offset >= 0}
    finally:
        consumer.close()


def known_everywhere(client: Mapping[str, Any], topics: Mapping[str, int]) -> None:
    """Returns when every broker knows that many partitions of each, and who leads them, and these serve them.

    A broker learns of a new topic a moment after the answer, and may be named as a leader before it serves.
    """
    admin = admin_of(client)
    brokers = [f"{one.host}:{one.port}" for one in admin.list_topics(timeout=PATIENCE_S).brokers.values()]
    for broker in brokers:
        asked = admin if len(brokers) == 1 else AdminClient({**client, "bootstrap.servers": broker})
        wait_for(partial(_led, asked, topics))
    wait_for(partial(_served, admin, topics))


def _served(admin: AdminClient, topics: Mapping[str, int]) -> bool:
    asked = {
        TopicPartition(name, number): OffsetSpec.latest()
        for name, count in topics.items()
        for number in range(count)
    }
    try:
        for future in admin.list_offsets(asked, request_timeout=PATIENCE_S).values():
            future.result(PATIENCE_S)
    except KafkaException as failure:
        if failure.args[0].code() not in _NOT_YET:
            raise
        return False
    return True


def _led(admin: AdminClient, topics: Mapping[str, int]) -> bool:
    known = admin.list_topics(timeout=PATIENCE_S).topics
    return all(
        name in known
        and len(known[name].partitions) >= count
        and all(one.leader >= 0 for one in known[name].partitions.values())
        for name, count in topics.items()
    )


def all_in_sync(client: Mapping[str, Any]) -> None:
    """Returns when no replica of any partition is missing from the ISR."""
    admin = admin_of(client)

    def whole() -> bool:
        topics = admin.list_topics(timeout=PATIENCE_S).topics.values()
        return all(set(one.isrs) == set(one.replicas) for each in topics for one in each.partitions.values())

    wait_for(whole)


def coordinators_ready(client: Mapping[str, Any]) -> None:
    """Returns when every group would be answered: the topic of groups is made for the first who asks, and its
    partitions are loaded a moment after. librdkafka's admin client crashes when it hears so of a group."""
    groups = "abcd"  # one for each partition that the topic has in a lab
    consumers = [Consumer({**client, "group.id": group, "log_level": 2}) for group in groups]
    try:
        for consumer in consumers:
            wait_for(partial(_coordinated, consumer))
    finally:
        for consumer in consumers:
            consumer.close()


def _coordinated(consumer: Consumer) -> bool:
    try:
        consumer.committed([TopicPartition("any", 0)], timeout=PATIENCE_S)
    except KafkaException as error:
        if error.args[0].code() not in _COORDINATING and not passing(error.args[0]):
            raise
        return False
    return True


def write(
    client: Mapping[str, Any],
    topic: str,
    values: Sequence[bytes],
    key: bytes | None = None,
    partition: int = -1,
) -> None:
    """Returns when every record was acknowledged. Without a partition, the producer chooses."""
    failed: list[object] = []

    def acknowledged(problem: object, _message: object) -> None:
        if problem is not None:
            failed.append(problem)

    producer = Producer({**client, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value=value, key=key, partition=partition, on_delivery=acknowledged)
    left = producer.flush(PATIENCE_S)
    assert not left, f"{left} records were not acknowledged"
    assert not failed, f"{failed[0]}"


def open_transaction(
    client: Mapping[str, Any], topic: str, transactional_id: str, *partitions: int, key: bytes | None = None
) -> Producer:
    """Returns a producer with an open transaction, which holds a record of each partition."""
    producer = Producer({**client, "transactional.id": transactional_id})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for partition in partitions:
        producer.produce(topic, b"not committed", key, partition)
    assert producer.flush(PATIENCE_S) == 0
    return producer


def read(client: Mapping[str, Any], topic: str, *, timeout: float = PATIENCE_S) -> list[Record]:
    """Everything that is committed in a topic now, by partition and offset; what was open when it was called
    has ended."""
    settled(client, topic)
    return [
        Record(message.partition(), message.offset(), message.key(), message.value())
        for message in committed(client, topic, timeout=timeout)
    ]


def committed(client: Mapping[str, Any], topic: str, *, timeout: float = PATIENCE_S) -> list[Any]:
    """The messages that a reader of committed records sees now, by partition and offset."""
    consumer = Consumer(
        {
            **client,
            "group.id": "reading-for-a-test",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,  # an end is told when a fetch finds nothing
            "log_level": 2,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=timeout).topics[topic].partitions
        # Where records never stop coming, the end is where it was when we began to read.
        marks = {number: watermarks(consumer, topic, number, timeout) for number in partitions}
        ends = {number: end for number, (begin, end) in marks.items() if begin < end}
        consumer.assign([TopicPartition(topic, number, marks[number][0]) for number in ends])
        found = _until_ends(consumer, ends, time.monotonic() + timeout)
        return sorted(found, key=lambda message: (message.partition(), message.offset()))
    finally:
        consumer.close()


def watermarks(
    consumer: Consumer, topic: str, partition: int, timeout: float = PATIENCE_S
) -> tuple[int, int]:
    """The first and the next offset. The client asks once, and a partition may have no leader yet."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout)
        except KafkaException as error:
            if not passing(error.args[0]) or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def settled(client: Mapping[str, Any], topic: str) -> None:
    """Returns when no transaction is open that has records in the topic now: a coordinator answers the end of
    one before its marks are written, and until then a reader of what is committed ends in front of it."""
    admin = admin_of(client)
    partitions: set[int] = set()
    ends: dict[int, int] = {}
    stable: dict[int, int] = {}

    def ended() -> bool:
        if not partitions:  # it may only just be made
            partitions.update(admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions)
        ends.update(ends or _ends(admin, topic, partitions, IsolationLevel.READ_UNCOMMITTED))
        stable.update(_ends(admin, topic, partitions, IsolationLevel.READ_COMMITTED))
        return bool(ends) and all(stable.get(one, -1) >= end for one, end in ends.items())

    wait_for(ended, about=lambda: f"{topic} ends at {ends}, and what is committed at {stable}")


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


def _until_ends(consumer: Consumer, ends: dict[int, int], deadline: float) -> list[Any]:
    found: list[Any] = []
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
            found.append(message)
        else:
            ends.pop(partition, None)
    return found


def passing(problem: KafkaError) -> bool:
    """Said while a broker comes back or a leader moves; the client goes on by itself."""
    return problem.retriable() or problem.code() in _PASSING


def wait_for(
    true: Callable[[], object],
    timeout: float = PATIENCE_S,
    every: float = 0.05,
    longest: float = _LONGEST_PAUSE_S,
    about: Callable[[], object] | None = None,
) -> None:
    """Poll until it is true, or fail at the deadline and tell `about` what. The longer it takes, the less it
    is asked: a look may cost what is waited for the cores that it wants."""
    deadline = time.monotonic() + timeout
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:.0f} s: {about() if about else _told(true)}")
        time.sleep(every)
        every = max(every, min(every * 1.2, longest))


def _told(true: Callable[[], object]) -> str:
    """In the words of the test: a failure is one line."""
    try:
        return " ".join(inspect.getsource(true).split())
    except (OSError, TypeError):
        return repr(true)
