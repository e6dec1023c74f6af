"""Raw record sets from and to real brokers by aiokafka's client, which knows nothing of this product's."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import GroupCoordinatorNotAvailableError
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from aiokafka.structs import TopicPartition
from msgspec.structs import replace

from runtime.batch import AbortedTransactions, OutgoingBatch, RewriteSpec, next_sequence, prepare, stamp, walk

NOT_YET = {
    3,
    5,
    6,
    14,
    15,
    16,
    51,
}  # metadata on its way, coordinator loading or moving, markers being written
PATIENCE = 3_000  # looks, a fiftieth of a second and an answer each
READ_COMMITTED = 1
FETCH_BYTES = 4_000_000


class Fetched(NamedTuple):
    records: bytes
    aborted: list[tuple[int, int]]
    stable: int


class Raw:
    def __init__(self, client: AIOKafkaClient) -> None:
        self._client = client

    @classmethod
    async def connect(cls, bootstrap: str) -> "Raw":
        client = AIOKafkaClient(bootstrap_servers=bootstrap)
        await client.bootstrap()
        return cls(client)

    async def close(self) -> None:
        await self._client.close()

    async def _leader(self, topic: str) -> int:
        await self._client.add_topic(topic)
        for _ in range(PATIENCE):
            if await self._client.force_metadata_update():
                leader = self._client.cluster.leader_for_partition(TopicPartition(topic, 0))
                if leader not in (None, -1):
                    return int(leader)
            await asyncio.sleep(0.02)
        raise AssertionError(f"{topic} has no leader")

    async def fetch(self, topic: str, offset: int) -> Fetched:
        request = FetchRequest(200, 1, FETCH_BYTES, READ_COMMITTED, [(topic, [(0, offset, FETCH_BYTES)])])
        answer = await self._client.send(await self._leader(topic), request)
        partition = answer.topics[0][1][0]
        assert partition[1] == 0, f"error {partition[1]}"
        return Fetched(bytes(partition[-1]), [tuple(one) for one in partition[5] or ()], partition[3])

    async def send_in_transaction(
        self, topic: str, outgoing: Sequence[OutgoingBatch], name: str
    ) -> list[int]:
        """One committed transaction; the base offset of each batch."""
        coordinator = await self._coordinator(name)
        begun = await self._asked(coordinator, InitProducerIdRequest(name, 60_000), lambda a: a.error_code)
        producer = (begun.producer_id, begun.producer_epoch)
        adding = AddPartitionsToTxnRequest(name, *producer, [(topic, [0])])
        await self._asked(coordinator, adding, lambda a: a.errors[0][1][0][1])
        leader, bases, sequence = await self._leader(topic), [], 0
        for out in outgoing:
            header, body = stamp(out.batch, *producer, sequence)
            request = ProduceRequest(name, -1, 10_000, [(topic, [(0, header + bytes(body))])])
            answer = await self._asked(leader, request, lambda a: a.topics[0][1][0][1])
            bases.append(answer.topics[0][1][0][2])
            sequence = next_sequence(sequence, out.batch.records)
        await self._asked(coordinator, EndTxnRequest(name, *producer, True), lambda a: a.error_code)
        return bases

    async def _coordinator(self, name: str) -> int:
        for _ in range(PATIENCE):
            with suppress(GroupCoordinatorNotAvailableError):  # its topic is made for the first who asks
                return int(await self._client.coordinator_lookup(CoordinationType.TRANSACTION, name))
            await asyncio.sleep(0.02)
        raise AssertionError("no transaction coordinator")

    async def _asked(self, node: int, request: Any, code: Any) -> Any:
        for _ in range(PATIENCE):
            answer = await self._client.send(node, request)
            if code(answer) not in NOT_YET:
                assert code(answer) == 0, f"{type(request).__name__}: error {code(answer)}"
                return answer
            await asyncio.sleep(0.02)
        raise AssertionError(f"{type(request).__name__}: still error {code(answer)}")


class Copied(NamedTuple):
    outgoing: list[OutgoingBatch]
    offsets: dict[int, int]  # source to destination, as the segments and the acknowledged base offsets say
    position: int


async def copy(source: Raw, there: Raw, topic: str, to: str, spec: RewriteSpec, now_ms: int) -> Copied:
    """All that is committed, from the spec's start on, in one transaction per fetch."""
    copied = Copied([], {}, spec.start)
    while True:
        fetched = await source.fetch(topic, spec.start)
        walked = walk(fetched.records, spec.where)
        assert walked.failure is None
        prepared = prepare(walked.sets, spec, now_ms, AbortedTransactions(fetched.aborted))
        assert prepared.failure is None
        if prepared.outgoing:
            bases = await there.send_in_transaction(to, prepared.outgoing, f"copy-of-{to}")
            for out, base in zip(prepared.outgoing, bases, strict=True):
                for delta, first, count in out.segments:
                    copied.offsets.update((first + at, base + delta + at) for at in range(count))
            copied.outgoing.extend(prepared.outgoing)
        if prepared.position >= fetched.stable:
            return copied._replace(position=prepared.position)
        assert prepared.position > spec.start, "no progress"
        spec = replace(spec, start=prepared.position)
