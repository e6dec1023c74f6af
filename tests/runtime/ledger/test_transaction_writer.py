"""Batches of a transaction: several requests in flight, in order, and all or nothing after a failure."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

import pytest

from runtime.batch import Batch, walk
from runtime.batch.stamp import StampedBatch, stamp
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.errors import BrokerError, ErrorCode
from runtime.kafka.protocol.layout import INLINE
from runtime.kafka.protocol.produce import ProducedPartition, ProduceResponse
from runtime.kafka.protocol.request import Api
from runtime.ledger.transaction_writer import TransactionWriter, send_over
from tests.fakes.internal_topics import TransactionalTopics
from tests.runtime.kafka.protocol.golden import response
from tests.runtime.kafka.real import HERE, batch, run
from tests.runtime.kafka.scripted import Talk, talking_to
from tests.waiting import until

AT = TopicPartition("orders", 0)


def whole(*values: bytes) -> Batch:
    (one,) = walk(batch(*values), HERE).sets
    assert isinstance(one, Batch)
    return one


def stamped(count: int, size: int = 1) -> list[StampedBatch]:
    return [stamp(whole(bytes(size)), 1, 0, number) for number in range(count)]


def produced(error: int, base_offset: int) -> bytes:
    """The body of a response for one partition."""
    partition = ProducedPartition(*AT, ErrorCode(error), base_offset, -1, 0)
    return response(tuple[Annotated[ProduceResponse, INLINE]], ProduceResponse(0, (partition,)))


def answering(codes: Sequence[int], together: int) -> Callable[[Talk], Awaitable[None]]:
    """A broker that answers requests with these codes, so many at a time."""

    async def script(talk: Talk) -> None:
        for first in range(0, len(codes), together):
            asked = [await talk.hear() for _ in codes[first : first + together]]
            for number, one in enumerate(asked, start=first):
                assert one.api is Api.PRODUCE
                await talk.answer(one, produced(codes[number], 100 + number))

    return script


def test_many_requests_are_in_flight_and_the_offsets_are_in_their_order() -> None:
    async def sent() -> list[int]:
        async with talking_to(answering([0] * 64, together=32)) as link:
            return await send_over(link, AT, stamped(64), "tx")

    assert run(sent()) == [100 + number for number in range(64)]


@pytest.mark.parametrize(("batches", "size", "in_flight_at_once"), [(40, 1, 32), (3, 3 << 20, 1)])
def test_requests_in_flight_are_bounded_by_their_number_and_by_their_bytes(
    batches: int, size: int, in_flight_at_once: int
) -> None:
    async def most() -> int:
        in_flight: list[int] = []

        async def script(talk: Talk) -> None:
            for number in range(batches):
                asked = await talk.hear()
                in_flight.append(link.in_flight)
                await talk.answer(asked, produced(0, number))

        async with talking_to(script) as link:
            assert await send_over(link, AT, stamped(batches, size), "tx") == [*range(batches)]
        return max(in_flight)

    assert run(most()) == in_flight_at_once


def test_the_first_failure_is_raised_when_nothing_is_in_flight_any_more() -> None:
    codes = [0, ErrorCode.NOT_LEADER_OR_FOLLOWER, *[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER] * 3]

    async def left() -> int:
        async with talking_to(answering(codes, together=5)) as link:
            with pytest.raises(BrokerError, match="NOT_LEADER_OR_FOLLOWER"):
                await send_over(link, AT, stamped(5), "tx")
            return link.in_flight

    assert run(left()) == 0


def test_a_sender_that_is_cancelled_leaves_no_connection_behind() -> None:
    async def closed() -> bool:
        heard = asyncio.Event()

        async def script(talk: Talk) -> None:
            await talk.hear()
            heard.set()
            await talk.hear()
            await talk.hear()  # never: the connection is closed

        async with talking_to(script) as link:
            sending = asyncio.ensure_future(send_over(link, AT, stamped(2), "tx"))
            await heard.wait()
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            return link.closed

    assert run(closed())


async def test_batches_of_a_transaction_are_numbered_and_a_new_epoch_begins_again() -> None:
    there: Any = TransactionalTopics({AT.topic: []})
    writer = await TransactionWriter.open(there, "tx")
    batches = [whole(b"1"), whole(b"2", b"3"), whole(b"4")]
    await writer.commit({}, {AT: batches})
    await writer.commit({}, {AT: batches[:1]})
    there.refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(BrokerError):
        await writer.commit({}, {AT: batches[:1]})
    await writer.commit({}, {AT: batches[:2]})
    assert there.sequences == [0, 1, 3, 4, 5, 0, 1]


async def test_a_transaction_whose_writer_was_cancelled_is_aborted_before_the_next_one() -> None:
    """Else its records would be committed with those of the next one."""
    there: Any = TransactionalTopics({AT.topic: []})
    writer = await TransactionWriter.open(there, "tx")
    there.refusal = None
    cancelled = asyncio.create_task(writer.commit({}, {AT: [whole(b"cancelled")]}))
    await until(lambda: there.sequences)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    await writer.commit({}, {AT: [whole(b"next")]})
    # Its request was not answered: markers of the new epoch fence it, too.
    assert there.steps == ["tx", "abort", "tx", "abort", "abort", "tx", "commit"]
