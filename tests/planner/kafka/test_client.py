"""The client of a cluster: how long a broker may keep silent, what ends a wait, and who is asked instead."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from planner.kafka import ClusterClient, ClusterEndpoint, ClusterFailure
from planner.kafka.client import BrokerConnection
from planner.kafka.failures import NoAnswer, Refused
from runtime.contract.client.settings import WireSettings
from runtime.kafka.dial import Dialer
from runtime.kafka.protocol.metadata import AnyMetadataRequest, MetadataResponse
from tests.fakes.hostile_broker import (
    API_VERSIONS,
    METADATA,
    PASSWORD,
    USER,
    Asked,
    Fault,
    HostileBroker,
    Scram,
    framed,
    metadata,
)

pytestmark = pytest.mark.slow

TIMEOUT_S = 1.5
BYTE_S = 0.05  # of the answer, which has more than 60 bytes


BROKERS = AnyMetadataRequest(())


async def opened(broker: HostileBroker, timeout_s: float = TIMEOUT_S) -> BrokerConnection:
    settings = WireSettings((("127.0.0.1", broker.port),))
    return await BrokerConnection(Dialer(settings), ("127.0.0.1", broker.port), timeout_s).open()


async def test_an_answer_may_take_longer_than_silence_may() -> None:
    with HostileBroker(Fault(trickle_on=METADATA, trickle_s=BYTE_S)) as broker:
        connection = await opened(broker)
        before = time.monotonic()
        answer = await connection.call(BROKERS)
        assert time.monotonic() - before > TIMEOUT_S
        connection.close()
    assert [one.port for one in answer.brokers] == [broker.port]


def silent(asked: Asked) -> tuple[bytes, ...] | None:
    return () if asked.api == METADATA else None


async def test_silence_ends_the_wait() -> None:
    with HostileBroker(Fault(silent)) as broker:
        connection = await opened(broker)
        connection.set_timeout(0.3)
        with pytest.raises(NoAnswer, match=r"has not answered for 0\.3 s"):
            await connection.call(BROKERS)


async def test_closing_ends_the_wait() -> None:
    asked = asyncio.Event()

    async def hear(one: Asked) -> None:
        if one.api == METADATA:
            loop.call_soon_threadsafe(asked.set)

    loop = asyncio.get_running_loop()
    with HostileBroker(Fault(silent, before=hear)) as broker:
        connection = await opened(broker, 60)
        waiting = asyncio.create_task(connection.call(BROKERS))
        await asked.wait()
        connection.close()
        with pytest.raises(ClusterFailure):
            await waiting


LONG_S = 600.0  # a test that waits for this fails by its own timeout


@contextlib.asynccontextmanager
async def client_of(*brokers: HostileBroker, timeout_s: float = LONG_S) -> AsyncIterator[ClusterClient]:
    bootstrap = ",".join(f"127.0.0.1:{one.port}" for one in brokers)
    async with ClusterClient(ClusterEndpoint("dc1", bootstrap), timeout_s) as client:
        yield client


def mute(asked: Asked) -> tuple[bytes, ...] | None:
    return ()


def port_of(answer: MetadataResponse) -> int:
    """The port of the broker that answered: each names itself alone."""
    return answer.brokers[0].port


async def test_a_silent_broker_does_not_delay_the_login_at_the_next() -> None:
    with HostileBroker(Fault(mute)) as paused, HostileBroker(Fault()) as alive:
        async with client_of(paused, alive) as client:
            assert port_of(await client.ask(BROKERS)) == alive.port
        assert paused.asked  # it was tried


class Pausing:
    """Answers nothing from the first question after the login on: neither there nor on a new connection."""

    def __init__(self) -> None:
        self.paused = False

    def __call__(self, asked: Asked) -> tuple[bytes, ...] | None:
        self.paused = self.paused or asked.api == METADATA
        return () if self.paused else None


async def test_a_broker_that_pauses_during_a_question_is_replaced() -> None:
    with HostileBroker(Fault(Pausing())) as paused, HostileBroker(Fault()) as alive:
        async with client_of(paused, alive) as client:
            assert (await client.connection()).address[1] == paused.port
            assert port_of(await client.ask(BROKERS)) == alive.port


class JustStarted:
    """Names no brokers the first time, as a broker that just started does in ZooKeeper mode."""

    def __init__(self) -> None:
        self.told = False

    def __call__(self, asked: Asked) -> tuple[bytes, ...] | None:
        if asked.api != METADATA or self.told:
            return None
        self.told = True
        return (framed(asked, metadata([])),)


@pytest.mark.parametrize("others", [0, 1])
async def test_metadata_without_brokers_is_not_believed(others: int) -> None:
    started = Fault(JustStarted())
    with HostileBroker(started) as first, HostileBroker(Fault()) as second:
        brokers = [first, second][: 1 + others]
        async with client_of(*brokers) as client:
            assert port_of(await client.ask(BROKERS)) == brokers[-1].port


async def test_a_broker_that_needs_long_keeps_its_question() -> None:
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
        async with client_of(broker, other) as client:
            assert port_of(await client.ask(BROKERS)) == broker.port
        assert not other.asked


async def test_a_broker_without_another_is_waited_for() -> None:
    """There is nobody to ask instead: no second connection is made, and the timeout decides."""
    with HostileBroker(Fault(Pausing())) as broker:
        async with client_of(broker, timeout_s=3.0) as client:
            with pytest.raises(ClusterFailure, match="has not answered"):
                await client.ask(BROKERS)
        assert [one.api for one in broker.asked] == [API_VERSIONS, METADATA]


async def test_a_refused_login_is_not_repeated_at_other_brokers() -> None:
    """Each attempt counts towards a lock of the account."""
    refusing = Fault(scram=Scram(final=lambda signature: b"e=invalid-proof"))
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    with HostileBroker(refusing) as first, HostileBroker(refusing) as second:
        bootstrap = f"127.0.0.1:{first.port},127.0.0.1:{second.port}"
        async with ClusterClient(ClusterEndpoint("dc1", bootstrap, login), LONG_S) as client:
            with pytest.raises(Refused):
                await client.connection()
        assert not second.asked


async def test_no_login_starts_after_the_timeout() -> None:
    """A cluster of many brokers that are all silent is given up as soon as one with few."""
    with contextlib.ExitStack() as running:
        brokers = [running.enter_context(HostileBroker(Fault(mute))) for _ in range(12)]
        async with client_of(*brokers, timeout_s=1.0) as client:
            with pytest.raises(ClusterFailure, match="has not answered"):
                await client.connection()
    assert 1 <= sum(bool(one.asked) for one in brokers) <= 3


async def test_one_silent_broker_of_several_is_given_up_before_the_timeout() -> None:
    with (
        HostileBroker(Fault()) as first,
        HostileBroker(Fault(mute)) as paused,
        HostileBroker(Fault()) as last,
    ):
        addresses = {number: ("127.0.0.1", one.port) for number, one in enumerate((first, paused, last))}
        async with client_of(first) as client:
            reached = await client.dial_each(addresses, LONG_S, hurry=True)
            silent = reached.unreachable.pop(1)
            assert isinstance(silent, NoAnswer)
            assert "others answered" in silent.hint
            ports = {
                number: port_of(await connection.call(BROKERS))
                for number, connection in reached.connections.items()
            }
            assert ports == {0: first.port, 2: last.port}
            reached.close()


async def test_brokers_that_are_all_silent_get_the_whole_timeout() -> None:
    with HostileBroker(Fault(mute)) as one, HostileBroker(Fault(mute)) as two:
        addresses = {number: ("127.0.0.1", broker.port) for number, broker in enumerate((one, two))}
        async with client_of(one) as client:
            reached = await client.dial_each(addresses, 0.4, hurry=True)
    assert not reached.connections
    for failure in reached.unreachable.values():
        assert isinstance(failure, NoAnswer)
        assert "has not answered for 0.4 s" in failure.why
        assert "repl plan with a longer --timeout" in failure.hint
