"""A broker that hangs does not keep a question waiting: another one is asked too, and no more than that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from runtime.contract.client.settings import WireSettings
from runtime.kafka.cluster import AT_ONCE, ATTEMPT_S, SILENCE_S, KafkaCluster, first_answer
from runtime.kafka.errors import AuthenticationFailed, Disconnected, WireError
from runtime.kafka.protocol.request import Api, Writer
from tests.runtime.kafka.scripted import Talk, broker

SILENCE = 0.02
GONE = Disconnected("broker", "gone", sent=False)
REFUSED = AuthenticationFailed("broker", "no")


@dataclass
class Asking:
    """Brokers by name: an answer, a failure, or silence for ever; who was asked, and who was given up."""

    asked: list[str] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    at_once: int = 0
    most: int = 0

    def way(self, name: str, outcome: str | WireError | None, after: str = "") -> Callable[[], Any]:
        """With `after`, as soon as that one was asked too."""

        async def ask() -> str:
            self.asked.append(name)
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            try:
                while outcome is None or (after and after not in self.asked):
                    await asyncio.sleep(SILENCE / 10)
            except asyncio.CancelledError:
                self.given_up.append(name)
                raise
            finally:
                self.at_once -= 1
            if isinstance(outcome, WireError):
                raise outcome
            return outcome

        return ask

    def first(self, *ways: Callable[[], Any]) -> str:
        return asyncio.run(_first(ways))


async def _first(ways: tuple[Callable[[], Coroutine[Any, Any, str]], ...]) -> str:
    return await asyncio.wait_for(first_answer(ways, SILENCE), 60)


def test_one_that_answers_is_the_only_one_asked() -> None:
    asking = Asking()

    assert asking.first(asking.way("a", "yes"), asking.way("b", "no")) == "yes"
    assert asking.asked == ["a"]


def test_one_that_is_silent_gets_one_companion_and_is_given_up() -> None:
    asking = Asking()

    assert asking.first(asking.way("a", None), asking.way("b", "yes"), asking.way("c", "no")) == "yes"
    assert (asking.asked, asking.given_up) == (["a", "b"], ["a"])


def test_one_that_is_late_may_still_be_the_first() -> None:
    asking = Asking()

    assert asking.first(asking.way("a", "late", after="b"), asking.way("b", None)) == "late"
    assert asking.given_up == ["b"]


def test_one_that_fails_makes_room_for_the_next() -> None:
    asking = Asking()
    silent, gone = asking.way("a", None), [asking.way(name, GONE) for name in "bcd"]

    assert asking.first(silent, *gone, asking.way("e", "yes")) == "yes"
    assert asking.asked == ["a", "b", "c", "d", "e"]
    assert asking.most == AT_ONCE


def test_when_all_fail_it_is_the_first_failure() -> None:
    asking = Asking()
    other = Disconnected("broker", "refused", sent=False)

    with pytest.raises(Disconnected, match="gone"):
        asking.first(asking.way("a", GONE), asking.way("b", other))


def test_who_refuses_us_is_the_last_one_asked() -> None:
    asking = Asking()

    with pytest.raises(AuthenticationFailed):
        asking.first(asking.way("a", GONE), asking.way("b", REFUSED), asking.way("c", "yes"))
    assert asking.asked == ["a", "b"]


def test_one_that_was_asked_before_that_may_still_answer() -> None:
    asking = Asking()
    late = asking.way("a", "late", after="b")

    assert asking.first(late, asking.way("b", REFUSED), asking.way("c", "no")) == "late"


def test_a_caller_that_gives_up_takes_all_its_questions_back() -> None:
    asking = Asking()

    async def impatient() -> None:
        async with asyncio.timeout(SILENCE * 10):
            await first_answer([asking.way(name, None) for name in "abcd"], SILENCE)

    with pytest.raises(TimeoutError):
        asyncio.run(impatient())
    assert len(asking.asked) <= AT_ONCE
    assert sorted(asking.given_up) == asking.asked


@dataclass
class Brokers:
    """Brokers 1 and 2 of one cluster. The first one that is asked takes that and keeps silent for ever."""

    hung: int = 0
    ports: dict[int, int] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)

    def script(self, node: int) -> Callable[[Talk], Coroutine[Any, Any, None]]:
        async def talk(one: Talk) -> None:
            while True:
                heard = await one.hear()
                assert heard.api is Api.METADATA
                self.asked.append(node)
                self.hung = self.hung or node
                if node == self.hung:
                    await asyncio.sleep(3600)
                await one.answer(heard, self.metadata())

        return talk

    def metadata(self) -> bytes:
        writer = Writer()
        writer.int32(0)
        writer.count(len(self.ports))
        for node, port in self.ports.items():
            writer.int32(node)
            writer.compact_string("127.0.0.1")
            writer.int32(port)
            writer.compact_string(None)
            writer.no_tags()
        writer.compact_string("cluster")
        writer.int32(1)
        writer.count(0)
        writer.no_tags()
        return bytes(writer.buffer)

    def serving(self, work: Callable[[WireSettings], Coroutine[Any, Any, None]]) -> None:
        async def use() -> None:
            async with AsyncExitStack() as stack:
                for node in (1, 2):
                    self.ports[node] = await stack.enter_async_context(broker(self.script(node)))
                bootstrap = tuple(("127.0.0.1", port) for port in self.ports.values())
                await asyncio.wait_for(work(WireSettings(bootstrap)), 60)

        asyncio.run(use())


def test_a_broker_that_hangs_is_asked_last_from_then_on() -> None:
    brokers = Brokers()

    async def work(settings: WireSettings) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with await KafkaCluster.open(settings) as cluster:
            assert cluster.brokers.keys() == {1, 2}  # by the other one, whichever address came first
            assert SILENCE_S <= loop.time() - began < ATTEMPT_S

            brokers.hung = 0
            began = loop.time()
            await cluster.all_topics()
            assert SILENCE_S <= loop.time() - began < ATTEMPT_S

            asked_before = len(brokers.asked)
            await cluster.all_topics()
            assert brokers.asked[asked_before] == 3 - brokers.hung

    brokers.serving(work)
