"""Writes under the driver's transactional id, and confirms that this driver still holds it (R10).

Each action is confirmed before it begins. A heartbeat that was committed seconds ago proves that no other
driver ran the job at that moment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self

from runtime.contract.records import job_status
from runtime.contract.records.control import driver_transactional_id
from runtime.contract.records.job_status import JobStatus, StatusKey
from runtime.contract.records.ledger import LedgerKey, LedgerValue
from runtime.contract.spec import naming
from runtime.contract.spec.naming import TopicPartition
from runtime.driver.slots.channel import at, pause
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode, WireError
from runtime.kafka.records import InternalRecord, batches_of
from runtime.kafka.timing import Gathered
from runtime.ledger.transaction_writer import TransactionWriter
from runtime.slot.log import log_event

TIMEOUT_MS = 30_000
_FENCED = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
_HEARTBEAT_WITHIN_S = 5.0  # for each request: a standby starts a job that is silent for 4 to 10 s
EVERY_S = 1.0
_APART_S = 0.1  # at least, however often the status changes
FRESH_S = 3.0
_LOST_S = 30.0  # a broker may know a topic later than others


class DriverFenced(Exception):
    """Another driver holds the transactional id, or the coordinator fenced this one.

    This driver acts no more (R10).
    """


class StatusTopicLost(Exception):
    """The status topic is gone: this driver ends, and the next one creates it again at its start."""


_Records = Mapping[LedgerKey, LedgerValue | None]
_TOGETHER = 10_000  # ledger records of several callers in one transaction


@contextmanager
def _as_driver_fenced() -> Iterator[None]:
    """Converts an error that means a fence into DriverFenced."""
    try:
        yield
    except BrokerError as error:
        if error.code in _FENCED:
            raise DriverFenced(str(error)) from error
        raise


def clock_with_sleep() -> float:
    """Returns a clock in seconds that continues while the process is stopped and while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Leadership:
    """Writes under the driver's transactional id, one transaction at a time, and confirms that it is held.

    A heartbeat commits the job's status. Each duty first confirms that a heartbeat was committed seconds ago,
    so this process was the job's driver then (R10).

    Ledger records of several callers that wait at the same time are one transaction, so a job takes many
    flows over in a few transactions. At most one of these waits before a heartbeat.

    Its methods raise DriverFenced when the id is lost for good, and WireError for failures that a retry may
    solve.
    """

    def __init__(
        self,
        transactions: TransactionWriter,
        status: Callable[[], JobStatus],
        clock: Callable[[], float] = clock_with_sleep,
    ) -> None:
        self._transactions = transactions
        # The records of one flow that a broker refuses must not stop another flow (R7).
        self._commits = Gathered(self._commit, _TOGETHER, apart=lambda error: isinstance(error, BrokerError))
        self._status = status
        self._clock = clock
        self._beat_at = float("-inf")
        self._beating = asyncio.Lock()
        self._wake = asyncio.Event()
        self.trouble = ""

    @classmethod
    async def open(cls, cluster: KafkaCluster, job: str, status: Callable[[], JobStatus]) -> Self:
        """Initialises the driver's transactional id, which fences any earlier driver of the job.

        Raises WireError.
        """
        writer = await TransactionWriter.open(cluster, driver_transactional_id(job), TIMEOUT_MS)
        return cls(writer, status)

    async def commit(self, records: _Records) -> None:
        """Commits ledger records in one transaction, perhaps together with those of other callers."""
        await self._commits.ask(records)

    async def _commit(self, records: _Records) -> None:
        with _as_driver_fenced():
            await self._transactions.commit(records)

    async def commit_status(self, at: TopicPartition, records: Sequence[InternalRecord]) -> None:
        """Commits records of the status topic.

        Once it returns, no other driver had initialised the id at the moment of the commit.
        """
        with _as_driver_fenced():
            await self._transactions.commit({}, {at: batches_of(records)}, within=_HEARTBEAT_WITHIN_S)

    @property
    def age_s(self) -> float:
        """The seconds since the start of the last committed heartbeat; infinite before the first one."""
        return self._clock() - self._beat_at

    async def ensure(self) -> None:
        """Returns once the last heartbeat is fresh, and sends one if needed.

        Raises DriverFenced when another driver runs the job, and WireError when leadership can't be confirmed
        now; the caller then does nothing.
        """
        if self._clock() - self._beat_at > FRESH_S:
            await self.send_heartbeat()

    async def send_heartbeat(self) -> None:
        """Commits one heartbeat. Raises DriverFenced, WireError."""
        status = self._status()
        record = InternalRecord(
            job_status.encode_key(StatusKey("job", status.job)), job_status.encode(status)
        )
        async with self._beating:
            began = self._clock()
            await self.commit_status(at(naming.STATUS), [record])
            self._beat_at = began

    def request_heartbeat(self) -> None:
        """Sends the next heartbeat without a pause, because the status has changed."""
        self._wake.set()

    async def run(self) -> None:
        """Sends heartbeats until cancelled. Raises DriverFenced, StatusTopicLost."""
        lost_since: float | None = None
        while True:
            self._wake.clear()
            try:
                await self.send_heartbeat()
                self.trouble, lost_since = "", None
            except WireError as error:
                self.trouble = str(error)
                gone = isinstance(error, BrokerError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if not gone:
                    lost_since = None
                elif lost_since is None:
                    lost_since = self._clock()
                elif self._clock() - lost_since > _LOST_S:
                    raise StatusTopicLost(f"{naming.STATUS} was deleted: {error}") from error
                log_event(
                    "heartbeat_failed", error=self.trouble, age_s=round(self.age_s, 1), decision="retry"
                )
            await pause(EVERY_S, self._wake)
            await asyncio.sleep(_APART_S - self.age_s)
