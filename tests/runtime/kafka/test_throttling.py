"""A broker throttles a client: it answers, and then reads nothing of the connection for a while."""

from __future__ import annotations

import asyncio

from tests.runtime.kafka.scripted import Talk, talking_to
from tests.runtime.kafka.test_connection import END, ended, run


def test_a_throttled_client_waits_before_it_asks_again() -> None:
    times: list[float] = []

    async def script(talk: Talk) -> None:
        for throttle_ms in (200, 0):
            asked = await talk.hear()
            times.append(asyncio.get_running_loop().time())
            await talk.answer(asked, ended(throttle_ms=throttle_ms))

    async def client() -> None:
        async with talking_to(script) as connection:
            await connection.call(END)
            await connection.call(END)

    run(client())
    assert times[1] - times[0] >= 0.19


def test_what_is_in_flight_is_waited_for_longer() -> None:
    async def script(talk: Talk) -> None:
        first, second = await talk.hear(), await talk.hear()
        await talk.answer(first, ended(throttle_ms=60_000))
        await asyncio.sleep(2.3)
        await talk.answer(second, ended())

    async def client() -> None:
        async with talking_to(script) as connection:
            await asyncio.gather(connection.start(END, within=2), connection.start(END, within=2))

    run(client())
