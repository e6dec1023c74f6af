"""The three calls to the transaction coordinator, each with the retries that are normal for it.

What is fatal (47, 90), and what follows an answer that was lost, is decided by the slot.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError, PartitionsRefused
from runtime.kafka.protocol.transactions import (
    AddPartitionsRequest,
    AddPartitionsResponse,
    CoordinatorKind,
    EndTransactionRequest,
    InitProducerIdRequest,
    ProducerIdentity,
)
from runtime.kafka.queries.partitions import Coordinated, coordinated

DEFAULT_S = 30.0


async def init_producer_id(
    cluster: Coordinated, transactional_id: str, transaction_timeout_ms: int, within: float = DEFAULT_S
) -> ProducerIdentity:
    """A new epoch: whatever the id had open is aborted, whoever holds an older epoch is fenced.

    Sent again after a lost answer: at worst the epoch rises twice.
    """
    response = await coordinated(
        cluster,
        CoordinatorKind.TRANSACTION,
        transactional_id,
        InitProducerIdRequest(transactional_id, transaction_timeout_ms),
        lambda answer: answer.error,
        within=within,
        resend=True,
        purpose=_purpose(transactional_id),
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
    """All or none: they belong to the transaction, and will get its marker, when this returns.

    Sent again after a lost answer within the same transaction, to the same end. Raises PartitionsRefused.
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
    """Decided when this returns; markers follow within ms.

    Never sent twice where the first may have arrived: an old one that arrives late would end the next
    transaction under the same epoch. A ConnectionFailure with `sent` means: initialise, and ask the ledger.
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


def _purpose(transactional_id: str) -> str:
    """A connection of its own: a coordinator answers one request of a connection at a time."""
    return f"transaction {transactional_id}"


def _first_error(response: AddPartitionsResponse) -> ErrorCode:
    """Beside the partition that is refused stand the others as not attempted."""
    codes = {code for code in response.errors.values() if code}
    return next(iter(codes - {ErrorCode.OPERATION_NOT_ATTEMPTED} or codes), ErrorCode.NONE)


def _check(code: ErrorCode, where: str) -> None:
    if code:
        raise BrokerError(code, where)
