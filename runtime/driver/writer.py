"""Commits heartbeats, generations and first positions under the driver's transactional id (R10)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from runtime.contract.records.ledger import LedgerKey, LedgerValue
from runtime.contract.spec.assignment import driver_transactional_id
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.ledger.records import InternalRecord, batches_of
from runtime.ledger.transaction_writer import TransactionWriter

TIMEOUT_MS = 30_000
_FENCED = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
_HEARTBEAT_WITHIN_S = 15.0


class DriverFenced(Exception):
    """Another driver holds the transactional id, or the coordinator fenced this one.

    This driver acts no more (R10).
    """


class DriverWriter:
    """A DriverWriter commits records under the driver's transactional id, one transaction at a time.

    Its methods raise DriverFenced when the id is lost for good, and WireError for failures that a retry may
    solve.
    """

    def __init__(self, transactions: TransactionWriter) -> None:
        self._transactions = transactions

    @classmethod
    async def open(cls, cluster: KafkaCluster, job: str) -> DriverWriter:
        """Initialises the driver's transactional id, which fences any earlier driver of the job.

        Raises WireError.
        """
        return cls(await TransactionWriter.open(cluster, driver_transactional_id(job), TIMEOUT_MS))

    async def commit(self, records: Mapping[LedgerKey, LedgerValue | None]) -> None:
        """Commits ledger records in one transaction."""
        with _as_driver_fenced():
            await self._transactions.commit(records)

    async def commit_status(self, at: TopicPartition, records: Sequence[InternalRecord]) -> None:
        """Commits records of the status topic.

        Once it returns, no other driver had initialised the id at the moment of the commit.
        """
        with _as_driver_fenced():
            await self._transactions.commit({}, {at: batches_of(records)}, within=_HEARTBEAT_WITHIN_S)


@contextmanager
def _as_driver_fenced() -> Iterator[None]:
    """Converts an error that means a fence into DriverFenced."""
    try:
        yield
    except BrokerError as error:
        if error.code in _FENCED:
            raise DriverFenced(str(error)) from error
        raise
