"""A one-partition internal topic as a log: made when it is missing, read to its end, appended to."""

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from planner.kafka import Endpoint, admin, consumer, explain, is_transient
from planner.model.diagnostic import Failure, error
from planner.model.topology import Internal
from runtime.contract import naming

DAY_MS = 24 * 3_600_000
READ_SECONDS = 30.0
FIRST_ANSWER_SECONDS = 10.0
_REPLICATION = 3

# An end is what is read to. The group of a reader by assignment is never joined, so nobody needs to allow it.
_HARMLESS = frozenset({KafkaError._PARTITION_EOF, KafkaError.GROUP_AUTHORIZATION_FAILED})

_SMALL = {
    "segment.bytes": str(16 << 20),
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": str(DAY_MS),
}


@dataclass(frozen=True, slots=True)
class Record:
    key: bytes
    value: bytes | None
    at_ms: int
    offset: int


def configs(topic: str, internal: Internal) -> dict[str, str]:
    """What each of the control plane's own topics needs to be itself."""
    match topic:
        case naming.REGISTRY:
            return {"cleanup.policy": "compact", **_SMALL}
        case naming.LEASE:
            return {
                "cleanup.policy": "delete",
                "retention.ms": str(DAY_MS),
                "segment.bytes": str(1 << 20),
                "message.timestamp.type": "LogAppendTime",
            }
        case _:
            kept = internal.retention_ms if internal.retention_ms is not None else 30 * DAY_MS
            return {"cleanup.policy": "delete", "retention.ms": str(kept)}


def ensure(endpoint: Endpoint, topics: Iterable[str], internal: Internal) -> None:
    """Create the topics that are missing, as durable as the cluster can; wait until they can be written."""
    client = admin(endpoint)
    try:
        metadata = client.list_topics(timeout=FIRST_ANSWER_SECONDS)
        missing = [topic for topic in topics if topic not in metadata.topics]
        if not missing:
            return
        replication = internal.replication or min(_REPLICATION, len(metadata.brokers))
        wanted = [
            NewTopic(
                topic,
                num_partitions=1,
                replication_factor=replication,
                config={**configs(topic, internal), "min.insync.replicas": str(max(1, replication - 1))},
            )
            for topic in missing
        ]
        for topic, outcome in client.create_topics(wanted, operation_timeout=READ_SECONDS).items():
            _created(endpoint, topic, outcome)
    except KafkaException as failure:
        raise _unusable(endpoint, "the internal topics", failure) from failure
    _await_leaders(endpoint, client, missing)


def _created(endpoint: Endpoint, topic: str, outcome: Future[None]) -> None:
    try:
        outcome.result()
    except KafkaException as failure:
        if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise _unusable(endpoint, topic, failure) from failure


def _await_leaders(endpoint: Endpoint, client: AdminClient, topics: list[str]) -> None:
    """A broker answers "created" before every broker knows the topic and its leader."""
    deadline = time.monotonic() + READ_SECONDS
    pending = set(topics)
    while pending:
        for topic in list(pending):
            known = client.list_topics(topic, timeout=READ_SECONDS).topics[topic]
            if known.error is None and known.partitions and known.partitions[0].leader >= 0:
                pending.discard(topic)
        if pending and time.monotonic() > deadline:
            raise Failure(
                error(
                    f"no leader at {endpoint.cluster} for {READ_SECONDS:.0f} s: {', '.join(sorted(pending))}",
                    "look at the brokers of the cluster, then run this again",
                )
            )


def _unusable(endpoint: Endpoint, what: str, failure: KafkaException) -> Failure:
    return Failure(
        error(
            f"{what} at {endpoint.cluster} cannot be used: {explain(failure)}",
            "the principal of this cluster needs CREATE, DESCRIBE, READ and WRITE on topics with the prefix "
            f"{naming.INTERNAL_PREFIX} (docs/operations.md), and the brokers must answer",
        )
    )


def read(endpoint: Endpoint, topic: str) -> list[Record]:
    """All of the log, up to the end that it had when the read began. An absent topic is an empty log."""
    reader = consumer(endpoint)
    try:
        known = reader.list_topics(topic, timeout=FIRST_ANSWER_SECONDS).topics[topic]
        if known.error is not None and known.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return []
        _low, high = _watermarks(reader, topic)
        records: list[Record] = []
        reader.assign([TopicPartition(topic, 0, _low)])
        while _position(reader, topic, _low) < high:
            records.extend(_batch(endpoint, reader, topic))
        return [record for record in records if record.offset < high]
    except KafkaException as failure:
        raise _unusable(endpoint, topic, failure) from failure
    finally:
        reader.close()


def _watermarks(reader: Consumer, topic: str) -> tuple[int, int]:
    deadline = time.monotonic() + READ_SECONDS
    while True:
        try:
            low, high = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=5)
        except KafkaException as failure:
            if time.monotonic() > deadline or not is_transient(failure):
                raise
        else:
            return int(low), int(high)


def _position(reader: Consumer, topic: str, low: int) -> int:
    offset = reader.position([TopicPartition(topic, 0)])[0].offset
    return int(offset) if offset >= 0 else low


def _batch(endpoint: Endpoint, reader: Consumer, topic: str) -> list[Record]:
    first = reader.poll(READ_SECONDS)
    if first is None:
        raise Failure(
            error(
                f"{topic} at {endpoint.cluster} could not be read to its end within {READ_SECONDS:.0f} s",
                "look whether its partition has a leader, then run this again",
            )
        )
    found = []
    for message in (first, *reader.consume(5_000, timeout=0)):
        failure = message.error()
        if failure is None:
            offset = message.offset()
            assert offset is not None
            found.append(Record(message.key() or b"", message.value(), message.timestamp()[1], offset))
        elif failure.code() not in _HARMLESS and not failure.retriable():
            raise KafkaException(failure)
    return found


def latest(records: Iterable[Record]) -> Mapping[bytes, Record]:
    """What a compacted log says now: the last record of each key, tombstones gone."""
    last: dict[bytes, Record] = {}
    for record in records:
        if record.value is None:
            last.pop(record.key, None)
        else:
            last[record.key] = record
    return last


def append(
    producer: Producer, topic: str, records: Iterable[tuple[bytes, bytes | None]], seconds: float
) -> list[int]:
    """Write the records and wait until all in-sync replicas have them; their append times, in order."""
    outcomes: list[tuple[KafkaError | None, int]] = []

    def delivered(failure: KafkaError | None, message: Message) -> None:
        outcomes.append((failure, message.timestamp()[1] if failure is None else -1))

    count = 0
    for key, value in records:
        while True:
            try:
                producer.produce(topic, key=key, value=value, partition=0, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
    deadline = time.monotonic() + seconds
    while len(outcomes) < count:
        if time.monotonic() > deadline:
            waiting = count - len(outcomes)
            raise TimeoutError(
                f"{topic}: {waiting} of {count} records were not acknowledged in {seconds:.0f} s"
            )
        producer.poll(0.05)
    for failure, _ in outcomes:
        if failure is not None:
            raise KafkaException(failure)
    return [at_ms for _, at_ms in outcomes]
