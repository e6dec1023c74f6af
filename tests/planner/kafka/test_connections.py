"""Connections and sessions: how long a broker may keep silent, what ends a wait, and who is asked instead."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from planner.kafka.connection_errors import Closed, NoAnswer, Refused, WireFailure
from planner.kafka.connections import BlockingConnection, LoopThread, Session
from runtime.contract.client.settings import Password, SecurityProtocol, WireSettings
from runtime.kafka.dial import Dialer
from runtime.kafka.protocol.metadata import AnyMetadataRequest
from tests.fakes.hostile_broker import (
    API_VERSIONS,
    METADATA,
    PASSWORD,
    USER,
    Asked,
    Fault,
    HostileBroker,
    Scram,
)

pytestmark = pytest.mark.slow

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


LONG_S = 600.0  # a test that waits for this fails by its own timeout


@contextlib.contextmanager
def session_with(*brokers: HostileBroker, timeout_s: float = LONG_S) -> Iterator[Session]:
    session = Session(WireSettings(tuple(("127.0.0.1", one.port) for one in brokers)), timeout_s)
    try:
        yield session
    finally:
        session.close()


def mute(asked: Asked) -> tuple[bytes, ...] | None:
    return ()


def port_of(connection: BlockingConnection) -> int:
    connection.call(AnyMetadataRequest(()))
    return connection.address[1]


def test_a_silent_broker_does_not_delay_the_login_at_the_next() -> None:
    with HostileBroker(Fault(mute)) as paused, HostileBroker(Fault()) as alive:
        with session_with(paused, alive) as session:
            assert session.ask(port_of) == alive.port
        assert paused.asked  # it was tried


class Pausing:
    """Answers nothing from the first question after the login on: neither there nor on a new connection."""

    def __init__(self) -> None:
        self.paused = False

    def __call__(self, asked: Asked) -> tuple[bytes, ...] | None:
        self.paused = self.paused or asked.api == METADATA
        return () if self.paused else None


def test_a_broker_that_pauses_during_a_question_is_replaced() -> None:
    with (
        HostileBroker(Fault(Pausing())) as paused,
        HostileBroker(Fault()) as alive,
        session_with(paused, alive) as session,
    ):
        assert session.connection().address[1] == paused.port
        assert session.ask(port_of) == alive.port


def test_a_broker_that_needs_long_keeps_its_question() -> None:
    """The answer waits for the second connection, which shows that the broker is alive."""
    probed = asyncio.Event()
    connections: list[Asked] = []

    async def slow(asked: Asked) -> None:
        if asked.api == API_VERSIONS:
            connections.append(asked)
            if len(connections) > 1:
                probed.set()
        if asked.api == METADATA:
            await probed.wait()

    with HostileBroker(Fault(before=slow)) as broker, HostileBroker(Fault()) as other:
        with session_with(broker, other) as session:
            assert session.ask(port_of) == broker.port
        assert not other.asked


def test_a_broker_without_another_is_waited_for() -> None:
    """There is nobody to ask instead: no second connection is made, and the timeout decides."""
    with HostileBroker(Fault(Pausing())) as broker, session_with(broker, timeout_s=3.0) as session:
        with pytest.raises(WireFailure, match="has not answered"):
            session.ask(port_of)
        assert [one.api for one in broker.asked] == [API_VERSIONS, METADATA]


def test_a_refused_login_is_not_repeated_at_other_brokers() -> None:
    """Each attempt counts towards a lock of the account."""
    refusing = Fault(scram=Scram(final=lambda signature: b"e=invalid-proof"))
    with HostileBroker(refusing) as first, HostileBroker(refusing) as second:
        ports = tuple(("127.0.0.1", one.port) for one in (first, second))
        login = Password("SCRAM-SHA-256", USER, PASSWORD)
        session = Session(WireSettings(ports, security=SecurityProtocol.SASL_PLAINTEXT, sasl=login), LONG_S)
        with pytest.raises(Refused):
            session.connection()
        session.close()
        assert not second.asked


def test_no_login_starts_after_the_timeout() -> None:
    """A cluster of many brokers that are all silent is given up as soon as one with few."""
    with contextlib.ExitStack() as running:
        brokers = [running.enter_context(HostileBroker(Fault(mute))) for _ in range(12)]
        session = running.enter_context(session_with(*brokers, timeout_s=1.0))
        with pytest.raises(WireFailure, match="has not answered"):
            session.connection()
    assert 1 <= sum(bool(one.asked) for one in brokers) <= 3


def test_one_silent_broker_of_several_is_given_up_before_the_timeout() -> None:
    with (
        HostileBroker(Fault()) as first,
        HostileBroker(Fault(mute)) as paused,
        HostileBroker(Fault()) as last,
    ):
        addresses = {number: ("127.0.0.1", one.port) for number, one in enumerate((first, paused, last))}
        with session_with(first) as session:
            found = session.dial_each(addresses, LONG_S, hurry=True)
            silent = found.pop(1)
            assert isinstance(silent, NoAnswer)
            assert "others answered" in silent.way_out
            opened = {number: one for number, one in found.items() if isinstance(one, BlockingConnection)}
            assert {number: port_of(one) for number, one in opened.items()} == {0: first.port, 2: last.port}


def test_brokers_that_are_all_silent_get_the_whole_timeout() -> None:
    with HostileBroker(Fault(mute)) as one, HostileBroker(Fault(mute)) as two:
        addresses = {number: ("127.0.0.1", broker.port) for number, broker in enumerate((one, two))}
        with session_with(one) as session:
            found = session.dial_each(addresses, 0.4, hurry=True)
    for failure in found.values():
        assert isinstance(failure, NoAnswer)
        assert "has not answered for 0.4 s" in failure.why
