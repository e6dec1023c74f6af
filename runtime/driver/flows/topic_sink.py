"""This module writes records of files into a topic: a task commits records and positions together (R1).

The ledger holds how far each file was read, under the file's name and the partition that takes its records.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from runtime.contract.records.control import client_id, transactional_ids
from runtime.contract.records.job_status import FlowStats, PartitionStatus
from runtime.contract.records.ledger import PartitionKey, Progress, ProgressKey
from runtime.contract.spec.files import LinesSpec
from runtime.contract.spec.topic_settings import TopicSettings
from runtime.driver.flows.flow import DriverFlow, PositionsLost
from runtime.driver.flows.rounds import ROUND_S, Copied, RecordSink, RoundTasks
from runtime.driver.task import run_load
from runtime.files.source.load import LOAD, LoadFile, LoadTicket
from runtime.files.tasks import encode
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode, WireError
from runtime.kafka.protocol.metadata import TopicMetadata
from runtime.ledger.ledger import UndecidedProgress
from runtime.ledger.transaction_writer import fence

_LIMIT_S: Final = 60.0  # the topic's settings are read that often
_UNDECIDED_S, _DECIDED_WITHIN_S = 0.05, 30.0
Positions = Mapping[PartitionKey, Progress]


class TopicSink(RecordSink[Progress]):
    """Writes the topic of one flow. `topic` is the topic as it was last seen."""

    topic: TopicMetadata

    def __init__(self, flow: DriverFlow, lines: LinesSpec) -> None:
        self.stats = FlowStats(flow.name)
        self.lines = lines
        self._flow = flow
        self._limit = (float("-inf"), 0)
        self._in_doubt = True  # a task may still commit: one of this driver, or of one before it

    async def fence(self) -> None:
        """Fences the tasks of earlier rounds, so that what they committed is decided. Raises WireError.

        A task that failed, or whose last answer was lost, may still commit. A file that got another name
        meanwhile would be read again from a position that is no longer true (fencing 5).
        """
        if not self._in_doubt:
            return
        if stuck := await fence(self._flow.shared.destination, [self._transactional_id]):
            ((transactional_id, why),) = stuck.items()
            raise WireError(f"{transactional_id} is not fenced: {why}")
        self._in_doubt = False

    @property
    def _transactional_id(self) -> str:
        job = self._flow.job
        return transactional_ids(job.job, 0, self._flow.name, job.copy)[0]

    async def positions(self, cluster: KafkaCluster) -> Positions:
        """Returns the positions of the files in the ledger. Raises PositionsLost, WireError."""
        flow, ledger = self._flow, self._flow.shared.ledger
        positions = ledger.all_progress(flow.name)
        await self._decided(positions)
        if flow.ledger_lost and not positions:
            raise PositionsLost(
                f"the ledger lost the positions of {flow.name}: restore __repl.ledger, or give the flow"
                " another name to read all files anew"
            )
        flow.shared.clusters.invalidate(flow.spec.destination)
        listing = await flow.shared.clusters.listing(flow.spec.destination)
        topic = listing.get(self.lines.topic)
        if topic is None or topic.error is not ErrorCode.NONE or not topic.partitions:
            error = topic.error if topic is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise BrokerError(error, f"{self.lines.topic} at {flow.spec.destination}")
        self.topic = topic
        return ledger.all_progress(flow.name)

    async def _decided(self, keys: Collection[PartitionKey]) -> None:
        """Waits until the markers of the transactions are written. Raises WireError."""
        flow, ledger, deadline = self._flow, self._flow.shared.ledger, time.monotonic() + _DECIDED_WITHIN_S
        while any(isinstance(ledger.progress(key), UndecidedProgress) for key in keys):
            if time.monotonic() > deadline:
                raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS, f"the positions of {flow.name}")
            await asyncio.sleep(_UNDECIDED_S)
            await ledger.refresh(flow.name)

    async def commit(self, moved: Mapping[PartitionKey, Progress | None]) -> None:
        """Commits what became of files. No task of an earlier round writes any more after the fence (R3)."""
        shared = self._flow.shared
        await shared.leadership.ensure()
        self._in_doubt = True
        await self.fence()
        await shared.leadership.commit({ProgressKey(key): position for key, position in moved.items()})
        await shared.ledger.refresh(self._flow.name)
        await self._decided(moved)

    async def _largest(self) -> int:
        """Returns the topic's largest batch, at most a minute old. Raises WireError, ClientSettingsError."""
        read_at, largest = self._limit
        if time.monotonic() - read_at > _LIMIT_S:
            admin = await self._flow.shared.clusters.admin(self._flow.spec.destination)
            settings = (await admin.settings([self.lines.topic])).get(self.lines.topic, TopicSettings())
            largest = settings.max_message_bytes
            self._limit = time.monotonic(), largest
        return largest

    async def copy(self, read: Sequence[LoadFile], tasks: RoundTasks) -> Copied[Progress]:
        """Runs a round's task, which commits by itself. Raises TasksFailed, WireError.

        A task that failed has results, too: what it found out about the files before.
        """
        flow, spec, job = self._flow, self._flow.spec, self._flow.job
        ticket = LoadTicket(
            flow=flow.name,
            generation=flow.generation,
            transactional_id=self._transactional_id,
            cluster_name=spec.destination,
            cluster=job.clusters[spec.destination],
            client_id=client_id(job.job, 0),
            lines=self.lines,
            topic_id=self.topic.id,
            max_message_bytes=await self._largest(),
            files=list(read),
            round_s=ROUND_S,
            rate=spec.rate_limit,
        )
        self._in_doubt = True
        (result,) = LOAD.results(await tasks.run(run_load, [encode(ticket)]))
        tasks.worker = result.host, result.process
        await flow.shared.ledger.decided(flow.name)
        self.stats = replace(
            self.stats,
            records=self.stats.records + sum(file.records for file in result.done),
            bytes=self.stats.bytes + sum(file.bytes for file in result.done),
            commits=self.stats.commits + 1,
        )
        self._in_doubt = bool(result.error)
        positions = flow.shared.ledger.all_progress(flow.name)
        return Copied(result.done, positions, WireError(result.error) if result.error else None)

    def committed(self, status: PartitionStatus, position: Progress | None) -> PartitionStatus:
        return replace(
            status,
            destination_end=position.destination_end if position is not None else -1,
            last_commit_ms=position.written_at if position is not None else 0,
        )
