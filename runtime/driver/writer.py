"""This module writes heartbeats, generations and first positions under the driver's transactional id (R10).

Initialising the id fences every older driver of the job. After a failure the id is not initialised without an
epoch, which would make a replaced driver valid again. The writer asks to continue with its identity, and the
coordinator grants that only to the newest holder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from runtime.contract.records.ledger import LedgerKey, LedgerValue
from runtime.contract.spec.assignment import driver_transactional_id
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError, WireError
from runtime.kafka.protocol.fields import Reader, Writer
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.protocol.request import Api, Buffer
from runtime.kafka.protocol.transactions import (
    CoordinatorKind,
    InitProducerIdResponse,
    ProducerIdentity,
)
from runtime.kafka.queries.partitions import coordinated
from runtime.kafka.transactions import add_partitions, end_transaction, init_producer_id
from runtime.ledger.records import InternalRecord, chunks
from runtime.ledger.transaction_writer import BATCH_BYTES, LedgerWriter

TIMEOUT_MS = 30_000
_FENCED = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
_NO_OPEN_TRANSACTION = ErrorCode.INVALID_TXN_STATE
_TIMEOUT_S = 15.0


class DriverFenced(Exception):
    """Another driver holds the transactional id, or the coordinator fenced this one.

    This driver acts no more (R10).
    """


class DriverWriter(LedgerWriter):
    """A DriverWriter commits records under the driver's transactional id, one transaction at a time.

    Its methods raise DriverFenced when the id is lost for good, and WireError for failures that a retry may
    solve.
    """

    def __init__(self, cluster: KafkaCluster, transactional_id: str, identity: ProducerIdentity) -> None:
        super().__init__(cluster, transactional_id, identity)
        self._lock = asyncio.Lock()
        self._broken = False

    @classmethod
    async def begin(cls, cluster: KafkaCluster, job: str) -> Self:
        """Initialises the driver's transactional id, which fences any earlier driver of the job.

        Raises WireError.
        """
        transactional_id = driver_transactional_id(job)
        identity = await init_producer_id(cluster, transactional_id, TIMEOUT_MS)
        return cls(cluster, transactional_id, identity)

    async def commit(self, records: Mapping[LedgerKey, LedgerValue | None]) -> None:
        """Commits ledger records in one transaction."""
        async with self._lock:
            await self._recover()
            self._broken = True  # until it is done: the waiting task may be cancelled meanwhile
            try:
                await super().commit(records)
            except WireError as error:
                raise self._as_fenced(error) from error
            self._broken = False

    async def beat(self, at: TopicPartition, records: Sequence[InternalRecord]) -> None:
        """Commits records of the status topic.

        Once it returns, no other driver had initialised the id at the moment of the commit.
        """
        async with self._lock:
            await self._recover()
            self._broken = True
            try:
                await add_partitions(self._cluster, self._transactional_id, self._identity, [at], _TIMEOUT_S)
                for chunk in chunks(records, BATCH_BYTES):
                    await self._send(at, chunk)
                await end_transaction(self._cluster, self._transactional_id, self._identity, commit=True)
            except WireError as error:
                raise self._as_fenced(error) from error
            self._broken = False

    def _as_fenced(self, error: WireError) -> Exception:
        """Returns DriverFenced for an error that means a fence, else the error itself."""
        if isinstance(error, BrokerError) and error.code in _FENCED:
            return DriverFenced(str(error))
        return error

    async def _recover(self) -> None:
        """After a failure it aborts the open transaction and restarts sequences on a new epoch (fencing
        1).
        """
        if not self._broken:
            return
        try:
            await self._abort()
            self._identity = await self._renew_identity()
        except WireError as error:
            raise self._as_fenced(error) from error
        self._sequences.clear()
        self._broken = False

    async def _abort(self) -> None:
        """Aborts the open transaction, if there is one. Raises WireError."""
        try:
            await end_transaction(self._cluster, self._transactional_id, self._identity, commit=False)
        except BrokerError as error:
            if error.code is not _NO_OPEN_TRANSACTION:
                raise

    async def _renew_identity(self) -> ProducerIdentity:
        """Raises the epoch of the identity.

        Raises WireError, and BrokerError when another driver holds the id.
        """
        answer = await coordinated(
            self._cluster,
            CoordinatorKind.TRANSACTION,
            self._transactional_id,
            _Renew(self._transactional_id, TIMEOUT_MS, self._identity),
            lambda response: response.error,
            within=_TIMEOUT_S,
            resend=True,
            purpose=f"transaction {self._transactional_id}",
        )
        if answer.error:
            raise BrokerError(answer.error, f"renewing {self._transactional_id}")
        return answer.identity


class _Renew:
    """This request is InitProducerId with the holder's identity; the coordinator refuses it to all but the
    newest holder (KIP-360).
    """

    API: ClassVar[Api] = Api.INIT_PRODUCER_ID
    VERSIONS: ClassVar[tuple[int, int]] = (4, 5)
    FLEXIBLE: ClassVar[int] = 2

    def __init__(self, transactional_id: str, timeout_ms: int, identity: ProducerIdentity) -> None:
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._identity = identity

    def body(self, version: int) -> list[Buffer]:
        writer = Writer()
        writer.compact_string(self._transactional_id)
        writer.int32(self._timeout_ms)
        writer.int64(self._identity.producer_id)
        writer.int16(self._identity.epoch)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> InitProducerIdResponse:
        throttle_ms = reader.int32()
        error = ErrorCode(reader.int16())
        return InitProducerIdResponse(throttle_ms, error, ProducerIdentity(reader.int64(), reader.int16()))
