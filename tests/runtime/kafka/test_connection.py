"""One connection: order, pieces, time, and everything that can break it, over a real socket."""

from __future__ import annotations

import asyncio
import struct
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence

import pytest

from runtime.contract.client.settings import WireSettings
from runtime.kafka.connection import BufferPool, GrowingBuffers
from runtime.kafka.dial import Dialer
from runtime.kafka.errors import Disconnected, ErrorCode, Malformed, TimedOut, Unsupported
from runtime.kafka.protocol.fetch import FetchRequest, Isolation
from runtime.kafka.protocol.groups import ListedGroup, ListGroupsRequest
from runtime.kafka.protocol.layout import Int16, Int32
from runtime.kafka.protocol.request import Api
from runtime.kafka.protocol.transactions import EndTransactionRequest, ProducerIdentity
from tests.runtime.kafka.protocol.golden import GOLDEN, response
from tests.runtime.kafka.scripted import Talk, broker, framed, talking_to

END = EndTransactionRequest("tx", ProducerIdentity(1, 2), commit=True)
FETCH = FetchRequest(0, 0, 0, Isolation.READ_COMMITTED, 0, 0, {})

pytestmark = pytest.mark.uvloop


def ended(error: int = 0, throttle_ms: int = 0) -> bytes:
    return struct.pack(">ih", throttle_ms, error) + b"\0"


def groups_named(name: str) -> bytes:
    groups = [ListedGroup(name, "consumer", "Empty", "classic")]
    return response(tuple[Int32, Int16, Sequence[ListedGroup]], 0, 0, groups)


async def test_requests_in_flight_are_answered_in_order() -> None:
    async def script(talk: Talk) -> None:
        asked = [await talk.hear() for _ in range(5)]
        for number, one in enumerate(asked):
            await talk.answer(one, ended(number))

    async with talking_to(script) as connection:
        answers = [connection.start(END) for _ in range(5)]
        assert connection.in_flight == 5
        assert [int(await answer) for answer in answers] == [0, 1, 2, 3, 4]
        assert connection.in_flight == 0


@pytest.mark.parametrize("piece", [1, 3, 7, 1000])
async def test_an_answer_may_come_in_any_pieces(piece: int) -> None:
    async def script(talk: Talk) -> None:
        first, second = await talk.hear(), await talk.hear()
        data = framed(first.correlation_id, GOLDEN["FetchResponse", 17])
        data += framed(second.correlation_id, ended(51))
        for at in range(0, len(data), piece):
            await talk.say(data[at : at + piece])
            await asyncio.sleep(0)

    async with talking_to(script) as connection:
        fetched, over = connection.start(FETCH), connection.start(END)
        assert [one.high_watermark for one in (await fetched).partitions] == [100, 50, -1]
        assert await over == ErrorCode.CONCURRENT_TRANSACTIONS


async def test_the_highest_version_that_both_speak_is_used() -> None:
    heard: list[int] = []

    async def script(talk: Talk) -> None:
        asked = await talk.hear()
        heard.append(asked.version)
        await talk.answer(asked, ended())

    for highest in (3, 4, 9):
        async with talking_to(script, {Api.END_TXN: (0, highest)}) as connection:
            await connection.call(END)
    assert heard == [3, 4, 4]


@pytest.mark.parametrize(
    ("versions", "why"),
    [
        ({}, "END_TXN: .* does not offer it"),
        ({Api.END_TXN: (0, 0)}, "speaks versions 0 to 0, needed are 1 to 4"),
        ({Api.END_TXN: (7, 9)}, "speaks versions 7 to 9, needed are 1 to 4"),
    ],
)
async def test_a_broker_too_old_or_too_new_is_named(versions: dict[int, tuple[int, int]], why: str) -> None:
    async def script(talk: Talk) -> None:
        await talk.hear()

    async with talking_to(script, versions) as connection:
        with pytest.raises(Unsupported, match=why):
            await connection.call(END)
        assert not connection.closed


Script = Callable[[Talk], Awaitable[None]]


async def _hears_only(talk: Talk) -> None:
    while True:
        await talk.hear()


def after_one(answer: Callable[[int], bytes], *, closes: bool = False) -> Script:
    """Hears a request, answers it with these bytes, and hears on or closes the connection."""

    async def script(talk: Talk) -> None:
        asked = await talk.hear()
        await talk.say(answer(asked.correlation_id))
        if not closes:
            await talk.hear()

    return script


@pytest.mark.parametrize(
    ("script", "error", "why"),
    [
        (after_one(lambda _: b"", closes=True), Disconnected, "the broker closed the connection"),
        (
            after_one(lambda number: framed(number, ended())[:-2], closes=True),
            Disconnected,
            "the broker closed the connection",
        ),
        (after_one(lambda number: framed(number + 1, ended())), Malformed, "it answers request"),
        (
            after_one(lambda number: framed(number, b"\0")),
            Malformed,
            "the answer to END_TXN v4 can't be read",
        ),
        (
            after_one(lambda _: struct.pack(">i", 2_000_000_000)),
            Malformed,
            "an answer of 2000000000 bytes; such an answer has at most 65536",
        ),
        (after_one(lambda _: struct.pack(">i", 0)), Malformed, "an answer of 0 bytes"),
    ],
)
async def test_what_breaks_a_connection_fails_every_answer_that_is_due(
    script: Script, error: type[Disconnected | Malformed], why: str
) -> None:
    async with talking_to(script) as connection:
        due = [connection.start(END), connection.start(END)]
        for answer in due:
            with pytest.raises(error, match=why) as failure:
                await answer
            assert failure.value.sent
        assert connection.closed
        with pytest.raises(Disconnected, match=why) as later:
            await connection.call(END)
        assert not later.value.sent  # it can be asked elsewhere without a doubt


async def test_an_answer_that_no_request_waits_for_breaks_the_connection() -> None:
    async def script(talk: Talk) -> None:
        await talk.answer(await talk.hear(), ended())
        await talk.say(framed(1, ended()))
        await talk.hear()

    async with talking_to(script) as connection:
        await connection.call(END)
        await connection.ready()
        while not connection.closed:
            await asyncio.sleep(0.001)


async def test_no_answer_in_time_closes_the_connection() -> None:
    async def script(talk: Talk) -> None:
        await talk.hear()
        await talk.hear()
        await talk.hear()

    async with talking_to(script) as connection:
        late, behind = connection.start(END, within=0.05), connection.start(END)
        with pytest.raises(TimedOut, match=r"no answer to END_TXN in 0.05 s") as failure:
            await late
        assert failure.value.sent
        with pytest.raises(Disconnected, match="no answer to END_TXN"):
            await behind


async def test_a_cancelled_request_does_not_disturb_the_next() -> None:
    go = asyncio.Event()

    async def script(talk: Talk) -> None:
        first, second = await talk.hear(), await talk.hear()
        await go.wait()
        await talk.answer(first, ended(1))
        await talk.answer(second, ended(2))

    async with talking_to(script) as connection:
        first, second = connection.start(END), connection.start(END)
        first.cancel()
        go.set()
        assert int(await second) == 2


async def test_ready_waits_until_the_broker_takes_what_was_sent() -> None:
    go = asyncio.Event()

    async def script(talk: Talk) -> None:
        await go.wait()
        await talk.answer(await talk.hear(), ended())

    async with talking_to(script) as connection:
        large = EndTransactionRequest("x" * (32 << 20), ProducerIdentity(1, 2), commit=True)
        answer = connection.start(large)
        waiting = asyncio.ensure_future(connection.ready())
        await asyncio.wait({waiting}, timeout=0.05)
        assert not waiting.done()
        go.set()
        await waiting
        await answer


async def test_a_connection_that_is_refused_was_never_asked() -> None:
    async with broker(_hears_only) as port:
        pass
    with pytest.raises(Disconnected, match=f"127.0.0.1:{port}") as failure:
        await Dialer(WireSettings(())).dial("127.0.0.1", port, "test")
    assert not failure.value.sent


async def test_a_broker_that_does_not_introduce_itself_in_time_was_never_asked() -> None:
    async with broker(_hears_only, versions=None) as port:
        with pytest.raises(TimedOut, match=r"no connection in 0.05 s") as failure:
            await Dialer(WireSettings((), connect_timeout_s=0.05)).dial("127.0.0.1", port, "test")
    assert not failure.value.sent


@pytest.mark.parametrize("buffers", [BufferPool(), GrowingBuffers()], ids=["whole", "growing"])
async def test_a_long_answer_is_read_whole(buffers: BufferPool) -> None:
    name = "x" * (5 << 20)

    async def script(talk: Talk) -> None:
        await talk.answer(await talk.hear(), groups_named(name))

    async with broker(script) as port:
        connection = await Dialer(WireSettings(()), buffers=buffers).dial("127.0.0.1", port, "test")
        assert await connection.call(ListGroupsRequest()) == [
            ListedGroup(name, "consumer", "Empty", "classic")
        ]
        await connection.close()


async def test_an_announced_size_alone_costs_no_memory() -> None:
    size = 90_000_000

    async def script(talk: Talk) -> None:
        await talk.hear()
        await talk.say(struct.pack(">i", size) + b"1234")
        await talk.hear()

    async with broker(script) as port:
        dialer = Dialer(WireSettings(()), buffers=GrowingBuffers())
        connection = await dialer.dial("127.0.0.1", port, "test")
        tracemalloc.start()
        with pytest.raises(TimedOut):
            await connection.call(ListGroupsRequest(), within=0.2)
        assert tracemalloc.get_traced_memory()[1] < size / 10
        tracemalloc.stop()
        await connection.close()


# A broker throttles a client: it answers, and then reads nothing of the connection for a while


async def test_a_throttled_client_waits_before_it_asks_again() -> None:
    times: list[float] = []

    async def script(talk: Talk) -> None:
        for throttle_ms in (200, 0):
            asked = await talk.hear()
            times.append(asyncio.get_running_loop().time())
            await talk.answer(asked, ended(throttle_ms=throttle_ms))

    async with talking_to(script) as connection:
        await connection.call(END)
        await connection.call(END)
    assert times[1] - times[0] >= 0.19


async def test_no_broker_throttles_a_client_for_days() -> None:
    async def script(talk: Talk) -> None:
        await talk.answer(await talk.hear(), ended(throttle_ms=2**31 - 1))

    async with talking_to(script) as connection:
        await connection.call(END)
        left_s = connection.throttled_until - asyncio.get_running_loop().time()
    assert 290 < left_s <= 300


async def test_what_is_in_flight_is_waited_for_longer() -> None:
    async def script(talk: Talk) -> None:
        first, second = await talk.hear(), await talk.hear()
        await talk.answer(first, ended(throttle_ms=60_000))
        await asyncio.sleep(1.2)
        await talk.answer(second, ended())

    async with talking_to(script) as connection:
        await asyncio.gather(connection.start(END, within=1), connection.start(END, within=1))
