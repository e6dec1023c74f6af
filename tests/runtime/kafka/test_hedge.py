"""A broker that hangs does not keep a question waiting: another one is asked too, and no more than that."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from runtime.contract.client.settings import WireSettings
from runtime.kafka.cluster import ATTEMPT_S, CONTROL, KafkaCluster
from runtime.kafka.errors import AuthenticationFailed, Disconnected, ErrorCode, TimedOut, WireError
from runtime.kafka.protocol.layout import Int32, Uuid
from runtime.kafka.protocol.metadata import MetadataRequest
from runtime.kafka.protocol.request import Api
from runtime.kafka.timing import AT_ONCE, SILENCE_S, first_answer
from tests.runtime.kafka.protocol.golden import response
from tests.runtime.kafka.scripted import Talk, broker

SILENCE = 0.02
GONE = Disconnected("broker", "gone", sent=False)
REFUSED = AuthenticationFailed("broker", "no")


@dataclass
class Asking:
    """Brokers by name: an answer, a failure, or silence. The answer `late` comes once b was asked."""

    asked: str = ""
    given_up: str = ""
    at_once: int = 0
    most: int = 0

    def ways(self, **outcomes: str | WireError | None) -> list[Callable[[], Any]]:
        return [functools.partial(self._ask, *one) for one in outcomes.items()]

    async def _ask(self, name: str, outcome: str | WireError | None) -> str:
        self.asked += name
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            while outcome is None or (outcome == "late" and "b" not in self.asked):
                await asyncio.sleep(SILENCE / 10)
        except asyncio.CancelledError:
            self.given_up += name
            raise
        finally:
            self.at_once -= 1
        if isinstance(outcome, WireError):
            raise outcome
        return outcome


@pytest.mark.parametrize(
    ("outcomes", "answer", "asked", "given_up"),
    [
        ({"a": "yes", "b": "no"}, "yes", "a", ""),
        ({"a": None, "b": "yes", "c": "no"}, "yes", "ab", "a"),  # a silent one gets one companion
        ({"a": "late", "b": None}, "late", "ab", "b"),
        # One that fails makes room for the next.
        ({"a": None, "b": GONE, "c": GONE, "d": GONE, "e": "yes"}, "yes", "abcde", "a"),
        ({"a": GONE, "b": Disconnected("broker", "refused", sent=False)}, GONE, "ab", ""),
        # A broker that refuses the client is the last one asked, but one that was asked before may answer.
        ({"a": GONE, "b": REFUSED, "c": "yes"}, REFUSED, "ab", ""),
        ({"a": "late", "b": REFUSED, "c": "no"}, "late", "ab", ""),
    ],
)
async def test_the_first_answer_counts(
    outcomes: dict[str, Any], answer: str | WireError, asked: str, given_up: str
) -> None:
    asking = Asking()
    found: object
    try:
        found = await first_answer(asking.ways(**outcomes), SILENCE)
    except WireError as failure:
        found = failure
    assert found == answer
    assert (asking.asked, asking.given_up) == (asked, given_up)
    assert asking.most <= AT_ONCE


async def test_a_caller_that_gives_up_takes_all_its_questions_back() -> None:
    asking = Asking()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(SILENCE * 10):
            await first_answer(asking.ways(a=None, b=None, c=None, d=None), SILENCE)
    assert len(asking.asked) <= AT_ONCE
    assert "".join(sorted(asking.given_up)) == asking.asked


async def test_a_broker_that_hangs_is_asked_last_from_then_on() -> None:
    """Of brokers 1 and 2, the first one that is asked keeps silent for ever, and again once `hung` is 0."""
    hung, ports, asked = 0, list[int](), list[int]()

    def script(node: int) -> Callable[[Talk], Coroutine[Any, Any, None]]:
        async def talk(connected: Talk) -> None:
            nonlocal hung
            while True:
                heard = await connected.hear()
                assert heard.api is Api.METADATA
                asked.append(node)
                hung = hung or node
                if node == hung:
                    await asyncio.sleep(3600)
                brokers = [(at, "127.0.0.1", port, None) for at, port in enumerate(ports, 1)]
                await connected.answer(heard, _metadata(brokers))

        return talk

    loop = asyncio.get_running_loop()
    async with broker(script(1)) as first, broker(script(2)) as second:
        ports += [first, second]
        began = loop.time()
        settings = WireSettings(tuple(("127.0.0.1", port) for port in ports))
        async with await KafkaCluster.open(settings) as cluster:
            assert cluster.brokers.keys() == {1, 2}  # by the other one, whichever address came first
            assert SILENCE_S <= loop.time() - began < ATTEMPT_S

            hung, began = 0, loop.time()
            await cluster.all_topics()
            assert SILENCE_S <= loop.time() - began < ATTEMPT_S

            asked_before = len(asked)
            await cluster.all_topics()
            assert asked[asked_before] == 3 - hung
            links = [await cluster.connection(3 - hung, "look", 30) for _ in range(2)]
            assert links[0] is links[1]


async def test_metadata_without_brokers_is_not_believed() -> None:
    """A broker that has just started, in ZooKeeper mode, names no brokers and knows no topic."""
    ports: list[int] = []
    asked: list[str] = []

    def script(name: str, started: Callable[[], bool]) -> Callable[[Talk], Coroutine[Any, Any, None]]:
        async def talk(connected: Talk) -> None:
            while True:
                heard = await connected.hear()
                asked.append(name)
                brokers = [(1, "127.0.0.1", ports[0], None), (2, "127.0.0.1", ports[1], None)]
                await connected.answer(heard, _metadata(brokers if started() else []))

        return talk

    restarted = False
    async with (
        broker(script("first", lambda: not restarted)) as first,
        broker(script("second", lambda: True)) as second,
    ):
        ports += [first, second]
        settings = WireSettings((("127.0.0.1", first),))
        async with await KafkaCluster.open(settings) as cluster:
            await cluster.connection(1, CONTROL)  # so it is the first that is asked
            restarted = True
            asked.clear()
            assert (await cluster.topics(["orders"], fresh=True))["orders"].error is ErrorCode.NONE
            assert asked[0] == "first"
            assert cluster.brokers.keys() == {1, 2}


def _metadata(brokers: list[tuple[int, str, int, None]], throttle_ms: int = 0) -> bytes:
    """Returns a response of version 12; without brokers, the topic `orders` does not exist."""
    error = ErrorCode.NONE if brokers else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic = (error, "orders", b"O" * 16, False, (), 0)
    return response(
        tuple[
            Int32,
            Sequence[tuple[Int32, str, Int32, str | None]],
            str,
            Int32,
            Sequence[tuple[ErrorCode, str, Uuid, bool, Sequence[Int32], Int32]],
        ],
        *(throttle_ms, brokers, "cluster", 1, [topic]),
    )


@pytest.mark.parametrize("throttled", [False, True])
async def test_a_caller_with_little_time_leaves_the_shared_connection_open(throttled: bool) -> None:
    """Requests of others on it are answered behind the one that it does not wait for."""
    gave_up = asyncio.Event()
    ports: list[int] = []

    async def script(talk: Talk) -> None:
        while True:
            heard = await talk.hear()
            if len(talk.asked) > 3:  # the introduction, and two requests of the first call
                await gave_up.wait()
            throttle_ms = 300 if throttled and len(talk.asked) == 3 else 0
            await talk.answer(heard, _metadata([(1, "127.0.0.1", ports[0], None)], throttle_ms))

    async with broker(script) as port:
        ports.append(port)
        async with await KafkaCluster.open(WireSettings((("127.0.0.1", port),))) as cluster:
            for _ in range(2):
                await cluster.call(1, MetadataRequest(()))
            connection = await cluster.connection(1, CONTROL)
            other = asyncio.create_task(cluster.call(1, MetadataRequest(())))
            with pytest.raises(TimedOut, match=r"no answer to METADATA in 0.05 s") as late:
                await cluster.call(1, MetadataRequest(()), within=0.05)
            assert late.value.sent
            gave_up.set()
            assert (await other).cluster_id == "cluster"
            assert await cluster.connection(1, CONTROL) is connection
