"""A partition of a topic as a log: read it to its end, follow it, append to it.

The status topic of a destination is read as such a log: what jobs report about themselves, the newest record
by key.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import TopicMetadata
from msgspec import Struct, field

from planner.kafka.clients import ClusterEndpoint, consumer, explain, is_transient
from planner.model.diagnostic import Failure, error
from runtime.contract.records import job_status
from runtime.contract.records.job_status import (
    JobKey,
    JobStatus,
    PartitionStatus,
    SlotKey,
    SlotReport,
    SpecKey,
)
from runtime.contract.records.record_values import UnreadableValue
from runtime.contract.spec import naming
from runtime.contract.spec.jobspec import JobSpec

T = TypeVar("T")

READ_SECONDS = 30.0
FIRST_ANSWER_SECONDS = 10.0
_AGAIN_SECONDS = 0.2
_BATCH = 5_000

# A reader by assignment never joins its group, so it needs no right to it.
_IGNORED_ERRORS = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED})


class TopicRecord(Struct, frozen=True):
    """A record of an internal topic; `value` is None for a tombstone."""

    key: bytes
    value: bytes | None
    at_ms: int
    offset: int


def read(endpoint: ClusterEndpoint, topic: str, partition: int = 0) -> list[TopicRecord]:
    """Returns the whole log, up to the end that it has now. A topic that does not exist is an empty log."""
    with CommittedLogReader(endpoint, topic, partition) as tail:
        return tail.read_to_end()


class CommittedLogReader:
    """Reads committed records from the beginning, and continues from its last position."""

    def __init__(self, endpoint: ClusterEndpoint, topic: str, partition: int = 0) -> None:
        self._endpoint = endpoint
        self._topic = topic
        self._partition = partition
        self._reader: Consumer = consumer(endpoint)
        self._assigned = False

    def __enter__(self) -> "CommittedLogReader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.close()

    def read_to_end(self) -> list[TopicRecord]:
        """Returns the records since the last call, up to the present end. The first call returns all."""
        try:
            if not self._assign():
                return []
            records: list[TopicRecord] = []
            deadline = time.monotonic() + READ_SECONDS
            while not self._poll(records, READ_SECONDS):
                if time.monotonic() > deadline:
                    raise self._timeout_failure()
        except KafkaException as failure:
            raise unusable(self._endpoint, self._topic, failure) from failure
        return records

    def read_more(self, seconds: float) -> list[TopicRecord]:
        """Returns records that arrive within some time, as soon as there are any."""
        try:
            records: list[TopicRecord] = []
            deadline = time.monotonic() + seconds
            if not self._assign():
                time.sleep(seconds)
            else:
                while not records and (left := deadline - time.monotonic()) > 0:
                    self._poll(records, left)
        except KafkaException as failure:
            raise unusable(self._endpoint, self._topic, failure) from failure
        return records

    def _assign(self) -> bool:
        """Assigns the partition; returns False while the topic does not exist."""
        if not self._assigned:
            known = self._metadata()
            if known.error is not None and known.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return False
            low = self._log_start()
            self._reader.assign([TopicPartition(self._topic, self._partition, low)])
            self._assigned = True
        return True

    def _metadata(self) -> TopicMetadata:
        """Returns the topic's metadata; after a closed connection, a broker is asked again."""

        def ask(left: float) -> TopicMetadata:
            topics: dict[str, TopicMetadata] = self._reader.list_topics(self._topic, timeout=left).topics
            return topics[self._topic]

        return _retried(ask, FIRST_ANSWER_SECONDS, is_transient)

    def _log_start(self) -> int:
        place = TopicPartition(self._topic, self._partition)

        def ask(_: float) -> int:
            low, _high = self._reader.get_watermark_offsets(place, timeout=5)
            return int(low)

        def may_pass(failure: KafkaException) -> bool:
            # The leader may know a topic later than the broker that has listed it.
            is_new = failure.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            return is_new or is_transient(failure)

        return _retried(ask, READ_SECONDS, may_pass)

    def _poll(self, records: list[TopicRecord], seconds: float) -> bool:
        """Adds available records to the list; returns whether the end was reached."""
        first = self._reader.poll(seconds)
        if first is None:
            return False
        ended = False
        for message in (first, *self._reader.consume(_BATCH, timeout=0)):
            failure = message.error()
            if failure is None:
                records.append(_record(message))
                ended = False
            elif failure.code() == KafkaError._PARTITION_EOF:
                ended = True
            elif failure.code() not in _IGNORED_ERRORS and not failure.retriable():
                raise KafkaException(failure)
        return ended

    def _timeout_failure(self) -> Failure:
        return Failure(
            error(
                f"{self._topic} at {self._endpoint.cluster} could not be read to its end within "
                f"{READ_SECONDS:.0f} s",
                "check that its partition has a leader, then run this again",
            )
        )


def _retried(ask: Callable[[float], T], seconds: float, may_pass: Callable[[KafkaException], bool]) -> T:
    """Asks until there is an answer, or some time is over; `ask` gets the seconds that are left."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return ask(max(deadline - time.monotonic(), _AGAIN_SECONDS))
        except KafkaException as failure:
            if time.monotonic() > deadline or not may_pass(failure):
                raise
            time.sleep(_AGAIN_SECONDS)


def _record(message: Message) -> TopicRecord:
    offset = message.offset()
    assert offset is not None
    return TopicRecord(message.key() or b"", message.value(), message.timestamp()[1], offset)


def compacted(records: Iterable[TopicRecord]) -> Mapping[bytes, TopicRecord]:
    """Returns the last record of each key, without tombstones, as compaction would leave them."""
    last: dict[bytes, TopicRecord] = {}
    for record in records:
        if record.value is None:
            last.pop(record.key, None)
        else:
            last[record.key] = record
    return last


def append(
    producer: Producer,
    topic: str,
    records: Iterable[tuple[bytes, bytes | None]],
    seconds: float,
    partition: int = 0,
) -> list[int]:
    """Writes the records to a partition and waits until all in-sync replicas have them.

    Returns their append times, in order. Raises TimeoutError or KafkaException.
    """
    outcomes: list[tuple[KafkaError | None, int]] = []

    def delivered(failure: KafkaError | None, message: Message) -> None:
        outcomes.append((failure, message.timestamp()[1] if failure is None else -1))

    count = 0
    for key, value in records:
        while True:
            try:
                producer.produce(topic, key=key, value=value, partition=partition, on_delivery=delivered)
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


def unusable(endpoint: ClusterEndpoint, what: str, failure: KafkaException) -> Failure:
    """Returns a Failure that says why an internal topic can't be used."""
    return Failure(
        error(
            f"{what} at {endpoint.cluster} cannot be used: {explain(failure)}",
            "the principal of this cluster needs CREATE, DESCRIBE, READ and WRITE on topics with the prefix "
            f"{naming.INTERNAL_PREFIX} (docs/operations.md), and the brokers must answer",
        )
    )


class JobStatusTable(Struct):
    """The newest reports of jobs. `specs` has None for a job whose spec this release can't read."""

    jobs: dict[str, JobStatus] = field(default_factory=dict)
    specs: dict[str, JobSpec | None] = field(default_factory=dict)
    slots: dict[tuple[str, int], SlotReport] = field(default_factory=dict)

    def update(self, records: Iterable[TopicRecord]) -> None:
        """Adds records. Only the newest of each key is decoded."""
        newest = {record.key: record.value for record in records}
        for key, value in newest.items():
            if value is not None:
                self._decode(key, value)

    def _decode(self, key: bytes, value: bytes) -> None:
        try:
            match job_status.decode_key(key):
                case JobKey(job):
                    self.jobs[job] = job_status.decode_job(value)
                case SpecKey(job):
                    self.specs[job] = None
                    self.specs[job] = job_status.decode_spec(value)
                case SlotKey(job, slot):
                    self.slots[job, slot] = job_status.decode_slot(value)
                case None:
                    pass
        except UnreadableValue:
            return  # written by a newer release: it is not interpreted

    def partitions(self, job: str) -> list[PartitionStatus]:
        """Returns the partitions as the slots of the job's newest driver last reported them."""
        status = self.jobs.get(job)
        driver = status.driver if status is not None else ""
        return [
            one
            for (name, _), report in self.slots.items()
            if name == job and report.driver == driver
            for one in report.status.partitions
        ]

    def lag(self, job: str) -> Mapping[str, int]:
        """Returns the records not copied yet, by flow, as far as they are known."""
        found: dict[str, int] = {}
        for one in self.partitions(job):
            behind = one.source_end - one.position if min(one.source_end, one.position) >= 0 else 0
            found[one.flow] = found.get(one.flow, 0) + max(behind, 0)
        return found
