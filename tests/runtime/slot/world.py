"""What the slot's tests share: topics, records, a stand-in for the driver, and what a reader sees at the
end.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from msgspec.structs import replace

from runtime.batch.spec import MAX_UNPACKED
from runtime.contract.client import settings as client
from runtime.contract.client.stores import Setting
from runtime.contract.records.control import (
    AssignedFlow,
    AssignedPartition,
    Assignment,
    SlotSpec,
    driver_transactional_id,
    transactional_ids,
)
from runtime.contract.records.job_status import PartitionState, PartitionStatus
from runtime.contract.records.ledger import Generation, GenerationKey, PartitionKey, Progress, ProgressKey
from runtime.contract.spec import topic_settings
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.flow import Earliest, Start
from runtime.contract.spec.jobspec import CopySettings, FlowSpec, ProvenanceMode
from runtime.contract.spec.schemas import RegistrySpec
from runtime.contract.spec.selection import SelectionSpec
from runtime.kafka.cluster import KafkaCluster
from runtime.ledger.ledger import Ledger, ProducerDirectory
from runtime.ledger.positions import commit_first_positions, first_positions
from runtime.ledger.transaction_writer import TransactionWriter, fence
from runtime.slot.budget import ByteBudget, SessionShares
from runtime.slot.context import SlotContext
from runtime.slot.idle_session import IdleSessions
from runtime.slot.slot import Slot
from tests.records import PATIENCE_S, admin_of, committed, known_everywhere, settled, watermarks

NOWHERE = ClusterSpec(bootstrap="127.0.0.1:9")
SLOT = SlotSpec("job", 0, "dc2", NOWHERE, MAX_UNPACKED)
FAST = CopySettings(
    retry_ms=50, retry_max_ms=1_000, stop_retry_ms=1_000, tail_every_ms=200, transaction_timeout_ms=10_000
)


@dataclass(frozen=True)
class Row:
    """A record as a reader sees it; `offset` is left out of comparisons of content."""

    offset: int = field(compare=False)
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class Side:
    """A cluster of a lab, with blocking helpers on confluent-kafka."""

    name: str
    bootstrap: str
    client: Mapping[str, Any]

    def spec(self) -> ClusterSpec:
        """As a job spec names it."""
        given: dict[str, Setting] = {
            key: str(value) for key, value in self.client.items() if key != "bootstrap.servers"
        }
        return ClusterSpec(bootstrap=self.bootstrap, client=given)

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Nothing expires: tests write timestamps of the past."""
        settings = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in config.items()}
        self._create([NewTopic(topic, partitions, self._replication(), config=settings)])

    def create_internal(self) -> None:
        topics = (*topic_settings.at_destination(), *topic_settings.at_source())
        copies = self._replication()
        self._create([NewTopic(one.name, one.partitions, copies, config=dict(one.config)) for one in topics])

    def _replication(self) -> int:
        return min(3, len(self.admin().list_topics(timeout=PATIENCE_S).brokers))

    def delete(self, topic: str) -> None:
        admin = self.admin()
        for done in admin.delete_topics([topic]).values():
            done.result(PATIENCE_S)

    def forget(self, topic: str, below: int) -> None:
        """As retention does: what lies below is gone from partition 0."""
        admin = self.admin()
        for done in admin.delete_records([TopicPartition(topic, 0, below)]).values():
            done.result(PATIENCE_S)

    def admin(self) -> AdminClient:
        return admin_of(self.client)

    def producer(self, **config: Any) -> Producer:
        named = {key.replace("_", "."): value for key, value in config.items()}
        return Producer({**self.client, "linger.ms": 5, "log_level": 2, **named})

    def write(self, topic: str, rows: Iterable[Mapping[str, Any]], **config: Any) -> None:
        producer = self.producer(**config)
        for row in rows:
            while True:
                try:
                    producer.produce(topic, **row)
                    break
                except BufferError:
                    producer.poll(0.1)
        left = producer.flush(2 * PATIENCE_S)
        assert not left, f"{left} records of {topic} were not acknowledged"

    def ends(self, topic: str, partitions: int = 1, committed: bool = True) -> list[tuple[int, int]]:
        """Of what is committed, once the transactions that were open when it was called have ended."""
        if committed:
            settled(self.client, topic)
        isolation = "read_committed" if committed else "read_uncommitted"
        consumer = Consumer({**self.client, "group.id": "ends-for-a-test", "isolation.level": isolation})
        try:
            return [watermarks(consumer, topic, one) for one in range(partitions)]
        finally:
            consumer.close()

    def read(
        self, topic: str, partitions: int = 1, *, settle: bool = True, within_s: float = PATIENCE_S
    ) -> list[list[Row]]:
        """Everything that is committed now in the first partitions. `settle`: transactions that were open
        when it was called have ended, which takes long where somebody died in one.
        """
        if settle:
            settled(self.client, topic)
        messages = committed(self.client, topic, timeout=within_s)
        return [[_row(one) for one in messages if one.partition() == number] for number in range(partitions)]

    def _create(self, topics: Sequence[NewTopic]) -> None:
        admin = self.admin()  # its futures need it alive
        for name, done in admin.create_topics(list(topics)).items():
            try:
                done.result(PATIENCE_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise AssertionError(f"{name}: {error}") from error
        known_everywhere(self.client, {one.topic: one.num_partitions for one in topics})

    async def open(self) -> KafkaCluster:
        resolved = {key: str(value) for key, value in self.client.items() if key != "bootstrap.servers"}
        return await KafkaCluster.open(client.wire_settings(self.bootstrap, resolved))


def _row(message: Any) -> Row:
    kind, timestamp = message.timestamp()
    headers = tuple(message.headers() or ())
    return Row(
        message.offset(),
        -1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
        message.key(),
        message.value(),
        headers,
    )


def flow_spec(name: str, source: str = "dc1", destination: str = "dc2", **changes: Any) -> FlowSpec:
    return FlowSpec(
        name=name,
        source=source,
        destination=destination,
        topics=SelectionSpec(include=(".*",)),
        **changes,
    )


def slot_context(destination: KafkaCluster, ledger: Ledger) -> SlotContext:
    """Of a slot that its driver has not replaced."""

    async def confirm() -> None: ...

    budget = ByteBudget(1)
    return SlotContext(
        spec=SLOT,
        destination=destination,
        ledger=ledger,
        producers=ProducerDirectory(destination),
        map_partitions=1,
        budget=budget,
        shares=SessionShares(budget),
        idle_sessions=IdleSessions(budget, SessionShares(budget), asyncio.create_task),
        spawn=asyncio.create_task,
        confirm=confirm,
    )


class Driver:
    """Does what a driver does for one job, as far as a slot needs it."""

    def __init__(
        self,
        sides: Mapping[str, Side],
        destination: str = "dc2",
        job: str = "job",
        settings: CopySettings = FAST,
        registries: Mapping[str, RegistrySpec] | None = None,
    ) -> None:
        self.registries = dict(registries or {})
        self.sides = sides
        self.destination = destination
        self.job = job
        self.settings = settings
        self.version = 0

    def spec(self, slot: int = 0) -> SlotSpec:
        return SlotSpec(
            job=self.job,
            slot=slot,
            destination=self.destination,
            cluster=self.sides[self.destination].spec(),
            copy=self.settings,
            unpacked_bytes=MAX_UNPACKED,
            sources={name: side.spec() for name, side in self.sides.items() if name != self.destination},
            registries=self.registries,
        )

    async def take_over(
        self,
        flow: FlowSpec,
        partitions: Sequence[AssignedPartition],
        start: Start | None = None,
        slots: int = 1,
        slot: int = 0,
    ) -> Assignment:
        """The next generation, everything before it fenced, first positions, an assignment of all
        partitions.
        """
        destination = await self.sides[self.destination].open()
        source = await self.sides[flow.source].open()
        try:
            writer = await TransactionWriter.open(destination, driver_transactional_id(self.job))
            ledger = await Ledger.open(destination)
            await ledger.refresh(flow.name)
            before = ledger.generation(flow.name)
            number = before.number + 1 if before else 1
            ids = [
                one
                for each in range(slots)
                for one in transactional_ids(self.job, each, flow.name, self.settings)
            ]
            record = Generation(
                number,
                self.job,
                "active",
                uuid.uuid4().hex,
                ids,
                source.cluster_id,
                destination.cluster_id,
                int(time.time() * 1000),
            )
            await writer.commit({GenerationKey(flow.name): record})
            ids_before = before.transactional_ids if before else ()
            assert not await fence(destination, ids_before, within=PATIENCE_S)
            first = await first_positions(source, destination, partitions, start or Earliest(), number)
            await commit_first_positions(writer, ledger, first)
        finally:
            await source.close()
            await destination.close()
        self.version += 1
        flows = {flow.name: AssignedFlow(flow, number)}
        return Assignment(self.version, flows, list(partitions))

    async def progress(self, flow: str) -> dict[PartitionKey, Progress]:
        destination = await self.sides[self.destination].open()
        try:
            ledger = await Ledger.open(destination)
            await ledger.refresh(flow)
            return ledger.all_progress(flow)
        finally:
            await destination.close()

    async def overwrite(self, flow: str, partition: int, **changes: Any) -> None:
        """Progress as another writer would leave it."""
        destination = await self.sides[self.destination].open()
        try:
            writer = await TransactionWriter.open(destination, "another-writer")
            for key, progress in (await self.progress(flow)).items():
                if key.partition == partition:
                    await writer.commit({ProgressKey(key): replace(progress, **changes)})
        finally:
            await destination.close()

    @asynccontextmanager
    async def running(self, assignment: Assignment, slot: int = 0) -> AsyncIterator[Slot]:
        """A slot in this process, drained at the end. A test fails at once where its slot ends before."""
        made = Slot(self.spec(slot), assignment, {})
        task, test = asyncio.create_task(made.run()), asyncio.current_task()
        assert test is not None
        task.add_done_callback(cancel := lambda _: test.cancel())
        try:
            yield made
        except asyncio.CancelledError:
            if not task.done():
                raise
            test.uncancel()
            raise AssertionError(f"the slot ended: {task.result()}") from None
        finally:
            task.remove_done_callback(cancel)
            made.stop()
            await asyncio.wait_for(task, PATIENCE_S)


def assigned(flow: str, topic: str, partitions: int = 1, **changes: Any) -> list[AssignedPartition]:
    fields = {"destination_topic": topic, **changes}
    return [AssignedPartition(flow=flow, topic=topic, partition=one, **fields) for one in range(partitions)]


async def until(
    slot: Slot, holds: Callable[[PartitionStatus], bool], within_s: float = PATIENCE_S
) -> list[PartitionStatus]:
    """Waits until it holds for every partition of the slot."""
    deadline = time.monotonic() + within_s
    while True:
        status = slot.status().partitions
        if status and all(map(holds, status)):
            return status
        assert time.monotonic() < deadline, status
        await asyncio.sleep(0.02)


def at_end(ends: Sequence[int]) -> Callable[[PartitionStatus], bool]:
    """Copied through these ends of the source, by partition."""
    return lambda status: status.position >= ends[status.partition]


def in_state(state: PartitionState) -> Callable[[PartitionStatus], bool]:
    return lambda status: status.state is state


@dataclass(frozen=True)
class Copying:
    """A flow of one topic that both clusters have, and the driver of its job."""

    sides: Mapping[str, Side]
    topic: str
    flow: FlowSpec
    driver: Driver
    partitions: list[AssignedPartition]

    @property
    def source(self) -> Side:
        return self.sides[self.flow.source]

    @property
    def destination(self) -> Side:
        return self.sides[self.flow.destination]

    async def write(self, rows: Iterable[Mapping[str, Any]], topic: str = "") -> None:
        await asyncio.to_thread(self.source.write, topic or self.topic, rows)

    def copy_through(self, start: Start | None = None, **changes: Any) -> None:
        """Copies up to where the source ends now; `changes` are of the assigned partitions."""
        copy_through(self.driver, self.flow, [replace(one, **changes) for one in self.partitions], start)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Slot]:
        """Takes over, and copies with a slot in this process."""
        assignment = await self.driver.take_over(self.flow, self.partitions)
        async with self.driver.running(assignment) as slot:
            yield slot

    def assert_equal(self) -> None:
        """Both clusters hold the same records in the same order."""
        count = len(self.partitions)
        assert self.destination.read(self.topic, count) == self.source.read(self.topic, count)


def copying(
    sides: Mapping[str, Side],
    fresh: Callable[[str], str],
    partitions: int = 1,
    *,
    settings: CopySettings = FAST,
    provenance: ProvenanceMode = "off",
    create: bool = True,
    **assignment: Any,
) -> Copying:
    """The topics are created at both sides, or by the test; `assignment` are fields of each partition."""
    topic, flow = fresh("orders"), flow_spec(fresh("flow"), provenance=provenance)
    for side in sides.values() if create else ():
        side.create(topic, partitions)
    driver = Driver(sides, job=fresh("job"), settings=settings)
    return Copying(sides, topic, flow, driver, assigned(flow.name, topic, partitions, **assignment))


def copy_through(
    driver: Driver,
    flow: FlowSpec,
    partitions: Sequence[AssignedPartition],
    start: Start | None = None,
    within_s: float = PATIENCE_S,
) -> None:
    """Takes over and copies up to where the source ends now."""

    async def copy() -> None:
        assignment = await driver.take_over(flow, partitions, start)
        ends: dict[tuple[str, int], int] = {}
        for one in partitions:
            (_, end) = driver.sides[flow.source].ends(one.topic, one.partition + 1)[one.partition]
            ends[one.topic, one.partition] = end
        async with driver.running(assignment) as slot:
            await until(
                slot, lambda status: status.position >= ends[status.topic, status.partition], within_s
            )

    asyncio.run(copy())
