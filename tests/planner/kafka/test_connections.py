"""The blocking connection: how long a broker may keep silent, and what ends a wait."""

import threading
import time
from collections.abc import Iterator

import pytest

from planner.kafka.connections import BlockingConnection, LoopThread
from planner.kafka.errors import Closed, NoAnswer
from runtime.contract.client.settings import WireSettings
from runtime.kafka.dial import Dialer
from runtime.kafka.protocol.metadata import AnyMetadataRequest
from tests.fakes.hostile_broker import METADATA, Asked, Fault, HostileBroker

TIMEOUT_S = 1.5
BYTE_S = 0.05  # of the answer, which has more than 60 bytes


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    running = LoopThread("test")
    yield running
    running.end()


def opened(loop: LoopThread, broker: HostileBroker, timeout_s: float = TIMEOUT_S) -> BlockingConnection:
    settings = WireSettings((("127.0.0.1", broker.port),))
    return BlockingConnection(loop, Dialer(settings), ("127.0.0.1", broker.port), timeout_s).open()


def test_an_answer_may_take_longer_than_silence_may(loop: LoopThread) -> None:
    with HostileBroker(Fault(trickle_on=METADATA, trickle_s=BYTE_S)) as broker:
        connection = opened(loop, broker)
        before = time.monotonic()
        answer = connection.call(AnyMetadataRequest(()))
        assert time.monotonic() - before > TIMEOUT_S
    assert [one.port for one in answer.brokers] == [broker.port]


def silent(asked: Asked) -> tuple[bytes, ...] | None:
    return () if asked.api == METADATA else None


def test_silence_ends_the_wait(loop: LoopThread) -> None:
    with HostileBroker(Fault(silent)) as broker:
        connection = opened(loop, broker)
        connection.set_timeout(0.3)
        with pytest.raises(NoAnswer, match=r"has not answered for 0\.3 s"):
            connection.call(AnyMetadataRequest(()))


@pytest.mark.parametrize("way", ["close", "end"])
def test_another_thread_ends_the_wait(loop: LoopThread, way: str) -> None:
    asked = threading.Event()

    def hear(one: Asked) -> tuple[bytes, ...] | None:
        if one.api == METADATA:
            asked.set()
        return silent(one)

    with HostileBroker(Fault(hear)) as broker:
        connection = opened(loop, broker, 60)

        def stop() -> None:
            assert asked.wait(30)
            connection.close() if way == "close" else loop.end()

        stopper = threading.Thread(target=stop)
        stopper.start()
        with pytest.raises(Closed):
            connection.call(AnyMetadataRequest(()))
        stopper.join()


def test_an_ended_loop_opens_nothing(loop: LoopThread) -> None:
    with HostileBroker(Fault()) as broker:
        loop.end()
        with pytest.raises(Closed, match="not wanted any more"):
            opened(loop, broker)
