"""This module sends the transaction coordinator's requests, each with its normal retries.

The slot decides what is fatal (47, 90) and what follows a lost response.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from runtime.kafka.errors import BrokerError, ErrorCode, PartitionsRefused
from runtime.kafka.protocol.transactions import (
    AddPartitionsRequest,
    AddPartitionsResponse,
    CoordinatorKind,
    EndTransactionRequest,
    InitProducerIdRequest,
    ProducerIdentity,
)
from runtime.kafka.queries import Coordinated, coordinated

DEFAULT_S = 30.0
_INITIALISING_CONNECTIONS = 8  # to each coordinator, which handles one request of a connection at a time


async def init_producer_id(
    cluster: Coordinated,
    transactional_id: str,
    transaction_timeout_ms: int,
    within: float = DEFAULT_S,
    purpose: str = "",
) -> ProducerIdentity:
    """Returns a new epoch: it aborts an open transaction of the id and fences producers with an older epoch.

    It is sent again after a lost response: at worst the epoch rises twice. Without a `purpose`, it uses the
    connection of the id's transactions.
    """
    response = await coordinated(
        cluster,
        CoordinatorKind.TRANSACTION,
        transactional_id,
        InitProducerIdRequest(transactional_id, transaction_timeout_ms),
        lambda answer: answer.error,
        within=within,
        resend=True,
        purpose=purpose or _purpose(transactional_id),
    )
    _check(response.error, f"initialising {transactional_id}")
    return response.identity


async def add_partitions(
    cluster: Coordinated,
    transactional_id: str,
    identity: ProducerIdentity,
    partitions: Sequence[tuple[str, int]],
    within: float = DEFAULT_S,
) -> None:
    """Adds all partitions to the transaction, or none; on return each of them will get its marker.

    It is sent again after a lost response within the same transaction, with the same result. Raises
    PartitionsRefused.
    """
    response = await coordinated(
        cluster,
        CoordinatorKind.TRANSACTION,
        transactional_id,
        AddPartitionsRequest(transactional_id, identity, partitions),
        _first_error,
        within=within,
        resend=True,
        purpose=_purpose(transactional_id),
    )
    error = _first_error(response)
    if error:
        blamed = [at for at, code in response.errors.items() if code is error]
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

    The request is never sent twice where the first may have arrived: a delayed one would end the next
    transaction under the same epoch. After a ConnectionFailure with `sent`: call `init_producer_id`, and read
    the ledger.
    """
    response = await coordinated(
        cluster,
        CoordinatorKind.TRANSACTION,
        transactional_id,
        EndTransactionRequest(transactional_id, identity, commit),
        lambda answer: answer.error,
        within=within,
        resend=False,
        purpose=_purpose(transactional_id),
    )
    _check(response.error, f"{'committing' if commit else 'aborting'} the transaction of {transactional_id}")


def shared_purpose(transactional_id: str) -> str:
    """Names one of few connections to a coordinator, for many ids that may never begin a transaction."""
    return f"initialising {crc32(transactional_id.encode()) % _INITIALISING_CONNECTIONS}"


def _purpose(transactional_id: str) -> str:
    """Names a separate connection: a coordinator answers a connection's requests one by one."""
    return f"transaction {transactional_id}"


def _first_error(response: AddPartitionsResponse) -> ErrorCode:
    """Returns the error of the refused partition; the others have OPERATION_NOT_ATTEMPTED."""
    codes = {code for code in response.errors.values() if code}
    return next(iter(codes - {ErrorCode.OPERATION_NOT_ATTEMPTED} or codes), ErrorCode.NONE)


def _check(code: ErrorCode, where: str) -> None:
    if code:
        raise BrokerError(code, where)
