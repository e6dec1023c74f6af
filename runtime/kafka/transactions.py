"""This module sends the transaction coordinator's requests, each with its normal retries.

The slot decides what is fatal (47, 90) and what follows a lost response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar
from zlib import crc32

from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import BrokerError, ErrorCode, PartitionsRefused, TimedOut
from runtime.kafka.protocol.request import Request
from runtime.kafka.protocol.transactions import (
    NO_IDENTITY,
    AddPartitionsRequest,
    CoordinatorKind,
    EndTransactionRequest,
    InitProducerIdRequest,
    ProducerIdentity,
)
from runtime.kafka.queries import Coordinated, coordinated, error_of
from runtime.kafka.timing import in_time

DEFAULT_S = 30.0
_INITIALISING_CONNECTIONS = 16  # to each coordinator
R = TypeVar("R")


async def init_producer_id(
    cluster: Coordinated,
    transactional_id: str,
    transaction_timeout_ms: int,
    within: float = DEFAULT_S,
    identity: ProducerIdentity = NO_IDENTITY,
    purpose: str = "",
) -> ProducerIdentity:
    """Returns a new epoch: it aborts an open transaction of the id and fences producers with an older epoch.

    With an `identity`, only the newest holder of the id gets a new epoch (KIP-360). A holder that was fenced
    can't fence its successor by that: it gets INVALID_PRODUCER_EPOCH or PRODUCER_FENCED. So does one whose
    transaction the coordinator has aborted after its timeout. Raises Unsupported for a broker older than
    Kafka 2.5.

    The request is sent again after a lost response: without an identity the epoch may rise twice, with one
    the result is the same. Without a `purpose`, it uses the connection of the id's transactions.
    """
    renewed = await coordinated(
        cluster,
        CoordinatorKind.TRANSACTION,
        transactional_id,
        InitProducerIdRequest(transactional_id, transaction_timeout_ms, identity),
        within=within,
        resend=True,
        purpose=purpose or _purpose(transactional_id),
    )
    if isinstance(renewed, ErrorCode):
        doing = "initialising" if identity == NO_IDENTITY else "renewing"
        raise BrokerError(renewed, f"{doing} {transactional_id}")
    return renewed


async def add_partitions(
    cluster: Coordinated,
    transactional_id: str,
    identity: ProducerIdentity,
    partitions: Sequence[TopicPartition],
    within: float = DEFAULT_S,
    *,
    resend: bool = True,
) -> None:
    """Adds all partitions to the transaction, or none; on return each of them will get its marker.

    With `resend` it is sent again after a lost response within the same transaction, with the same result.
    Without, a refusal says that none was added by this call. Raises PartitionsRefused.
    """
    errors = await coordinated(
        cluster,
        CoordinatorKind.TRANSACTION,
        transactional_id,
        AddPartitionsRequest(transactional_id, identity, partitions),
        within=within,
        resend=resend,
        purpose=_purpose(transactional_id),
    )
    if error := error_of(errors):
        blamed = [at for at, code in errors.items() if code is error]
        names = ", ".join(f"{topic}-{index}" for topic, index in blamed[:5])
        raise PartitionsRefused(error, f"adding {names} to the transaction of {transactional_id}", blamed)


async def end_transaction(
    cluster: Coordinated,
    transactional_id: str,
    identity: ProducerIdentity,
    commit: bool,
    within: float = DEFAULT_S,
) -> None:
    """Ends the transaction; the decision is final on return, and the markers follow within milliseconds.

    The request is never sent again after a lost response: a delayed one would end the next transaction under
    the same epoch. It is sent again after a temporary error, because then the coordinator is done with it.

    Only a ConnectionFailure that is not `sent` says that the transaction is not ended. After any other
    WireError the outcome is unknown, because the coordinator's log may hold the end, and a later coordinator
    carries it out. Then `init_producer_id` must succeed, and after that the ledger tells. Until then nothing
    of the transaction may be written again (fencing 5).
    """
    error = await coordinated(
        cluster,
        CoordinatorKind.TRANSACTION,
        transactional_id,
        EndTransactionRequest(transactional_id, identity, commit),
        within=within,
        resend=False,
        purpose=_purpose(transactional_id),
    )
    if error:
        doing = "committing" if commit else "aborting"
        raise BrokerError(error, f"{doing} the transaction of {transactional_id}")


_NONE_OPEN = frozenset({ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING})


async def abort_and_renew(
    cluster: Coordinated,
    transactional_id: str,
    transaction_timeout_ms: int,
    identity: ProducerIdentity,
    within: float = DEFAULT_S,
) -> ProducerIdentity:
    """Aborts what is open under this identity, and returns the next one; `within` holds for each request.

    A coordinator that aborts an open transaction because of a renewal may refuse the renewal then, so the
    abort comes first. It changes nothing that is decided. An earlier request to commit that arrives later
    finds the transaction aborted, or a newer epoch. Raises as `init_producer_id` does.
    """
    try:
        await end_transaction(cluster, transactional_id, identity, commit=False, within=within)
    except BrokerError as error:
        if error.code not in _NONE_OPEN:
            raise
    return await init_producer_id(cluster, transactional_id, transaction_timeout_ms, within, identity)


_NOT_WRITABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)


async def abort_late(
    cluster: Coordinated,
    transactional_id: str,
    identity: ProducerIdentity,
    late: set[TopicPartition],
    within: float,
    add_within: float,
) -> None:
    """Writes abort markers of a new epoch where a request without a response may still arrive.

    `late` are the partitions of such requests; it is empty on return, and the caller then renews the epoch.
    The markers of the failed transaction carry its own epoch. Behind them, a late request would begin another
    transaction, which the next commit of the id would commit: before Kafka 3.6, leaders do not ask the
    coordinator whether a transaction is open. Behind the new markers it is refused; if it came before, they
    abort it. Partitions that are gone, or that this client may not write to, are removed from `late`.
    Raises WireError.
    """
    try:
        await add_partitions(cluster, transactional_id, identity, list(late), add_within)
    except PartitionsRefused as error:
        if error.code in _NOT_WRITABLE:
            late.difference_update(error.partitions)
        raise
    await end_transaction(cluster, transactional_id, identity, commit=False, within=within)
    late.clear()


async def init_in_turn(
    cluster: KafkaCluster,
    transactional_id: str,
    transaction_timeout_ms: int,
    within: float = DEFAULT_S,
    identity: ProducerIdentity = NO_IDENTITY,
) -> ProducerIdentity:
    """Does what `init_producer_id` does, over one of 16 connections to the coordinator that many ids share.

    It is for ids that may never begin a transaction. Each connection has one request under way: a second one
    would wait in the broker's socket. After a time-out it would be sent again, and the broker might still
    read it from the socket later. That would raise the epoch, and fence the producer that began meanwhile.
    """
    purpose = f"initialising {crc32(transactional_id.encode()) % _INITIALISING_CONNECTIONS}"
    return await init_producer_id(
        _InTurn(cluster), transactional_id, transaction_timeout_ms, within, identity, purpose
    )


class _InTurn:
    """A cluster of which each connection has one request under way."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster

    async def coordinator(self, kind: CoordinatorKind, key: str) -> int:
        return await self._cluster.coordinator(kind, key)

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        self._cluster.forget_coordinator(kind, key)

    async def call(self, node: int, request: Request[R], purpose: str, within: float | None) -> R:
        """Sends the request in its turn. Raises TimedOut, as for a request that was not sent, without one."""
        limit = DEFAULT_S if within is None else within
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit
        turn = self._cluster.turns[node, purpose]
        where = f"waiting for a connection to broker {node}"
        await in_time(turn.acquire(), limit, where)
        try:
            if loop.time() >= deadline:  # the request before has just timed out
                raise TimedOut(where, f"not done in {limit:g} s", sent=False)
            return await self._cluster.call(node, request, purpose, max(0.001, deadline - loop.time()))
        finally:
            turn.release()


def _purpose(transactional_id: str) -> str:
    """Names a separate connection: a coordinator answers a connection's requests one by one."""
    return f"transaction {transactional_id}"
