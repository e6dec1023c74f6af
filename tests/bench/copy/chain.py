"""The side of the requests alone: python -m tests.bench.copy.chain SOURCE DESTINATION TOPIC MIRROR

It sends what a transaction of the slot sends, and does nothing else: the next fetch while the partitions join
the next transaction, one produce request with a small record in place of the ledger's, and the end. It checks
nothing and recovers from nothing. So it is the least latency that one transaction after the other can have.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict, deque
from collections.abc import Mapping

import uvloop

from runtime.batch import Batch, stamp, walk
from runtime.contract.client.settings import wire_settings
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.fetch import FetchLimits, FetchSession
from runtime.kafka.protocol.fetch import FetchFrom
from runtime.kafka.protocol.produce import ProducePartition, ProduceRequest
from runtime.kafka.records import InternalRecord, build
from runtime.kafka.transactions import add_partitions, end_transaction, init_producer_id
from tests.bench.copy.processes import Running
from tests.bench.copy.run import Run
from tests.bench.copy.workloads import PARTITIONS
from tests.records import create_topic

_LEDGER = "{}.ledger"
_MAX_BYTES = 1 << 20


class Chain:
    name = "chain"
    warm_s = 3.0

    def start(self, run: Run) -> Running:
        destination = {"bootstrap.servers": run.destination}
        create_topic(destination, run.mirror_topic, PARTITIONS)
        create_topic(destination, _LEDGER.format(run.mirror_topic), 1)
        command = [sys.executable, "-m", "tests.bench.copy.chain"]
        names = [run.source, run.destination, run.topic, run.mirror_topic]
        return Running.start([*command, *names], run.mirror_topic, run.folder / f"{run.tag}.log")


async def copy(source: str, destination: str, topic: str, mirror: str) -> None:
    here, there = [await KafkaCluster.open(wire_settings(address, {})) for address in (source, destination)]
    known = (await here.topics([topic]))[topic]
    session = FetchSession(here, known.partitions[0].leader, FetchLimits(max_bytes=_MAX_BYTES))
    for partition in known.partitions:
        session.want(known.id, partition, FetchFrom(0, max_bytes=_MAX_BYTES))
    ledger = TopicPartition(_LEDGER.format(mirror), 0)
    partitions = [*(TopicPartition(mirror, number) for number in range(PARTITIONS)), ledger]
    leader = (await there.topics([mirror, ledger.topic]))[mirror].partitions[0].leader
    link = await there.connection(leader, "produce")
    identity = await init_producer_id(there, mirror, 30_000)
    sequences: defaultdict[TopicPartition, int] = defaultdict(int)
    progress = build([InternalRecord(b"k" * 60, b"v" * 100)] * PARTITIONS, 1)

    async def produce(batches: Mapping[TopicPartition, Batch]) -> None:
        sent = []
        for at, batch in batches.items():
            stamped = stamp(batch, identity.producer_id, identity.epoch, sequences[at])
            sequences[at] += batch.records
            sent.append(ProducePartition(*at, stamped))
        answer = await link.call(ProduceRequest(mirror, 30_000, sent))
        assert not any(produced.error for produced in answer.partitions), answer

    while True:
        answers, _ = await asyncio.gather(
            session.fetch(), add_partitions(there, mirror, identity, partitions)
        )
        queues: dict[TopicPartition, deque[Batch]] = {}
        for answer in answers:
            sets = walk(answer.records, TopicPartition(topic, answer.partition)).sets
            batches = deque(batch for batch in sets if isinstance(batch, Batch))
            if batches:
                queues[TopicPartition(mirror, answer.partition)] = batches
                start = FetchFrom(batches[-1].next_offset, max_bytes=_MAX_BYTES)
                session.want(known.id, answer.partition, start)
        requests = []
        while any(queues.values()):
            requests.append({at: queue.popleft() for at, queue in queues.items() if queue})
        if requests:
            requests[-1][ledger] = progress
        await asyncio.gather(*map(produce, requests))
        await end_transaction(there, mirror, identity, commit=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(copy(*sys.argv[1:]))
