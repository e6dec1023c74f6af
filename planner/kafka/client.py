"""The control plane's client of one cluster: it asks a broker, and another one if that fails, in time.

It uses the connections and the protocol of the data path (`runtime.kafka`). librdkafka's DescribeConfigs
can't ask for single keys and always asks for every synonym: for 9,000 topics it takes 3.8 s and 3.1 s of CPU.
This client takes 0.9 and 0.5 s for all keys, 0.3 and 0.1 s for three. librdkafka also lacks client quotas,
moves of replicas, the offsets of share groups, log directories and the quorum.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from planner.kafka.failures import (
    Closed,
    ClusterFailure,
    NoAnswer,
    Peer,
    Refused,
    RequestRefused,
    accepts,
    why_no_answer,
    why_no_connection,
    why_no_tls,
)
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.client.settings import ClientSettingsError, WireSettings, wire_settings
from runtime.contract.spec.naming import TopicPartition
from runtime.kafka.connection import Connection, GrowingBuffers
from runtime.kafka.dial import Dialer
from runtime.kafka.errors import ConnectionFailure, ErrorCode, Reached, TimedOut, Unsupported, WireError
from runtime.kafka.protocol.metadata import AnyMetadataRequest, MetadataResponse
from runtime.kafka.protocol.request import Request
from runtime.kafka.protocol.transactions import CoordinatorKind, FindCoordinatorRequest

T = TypeVar("T")
R = TypeVar("R")
Address = tuple[str, int]

TIMEOUT_S = 10.0
# The longest time for one answer, as a multiple of the timeout.
_LONGEST_ANSWER = 6
# After this silence during a request, a second connection asks whether the broker answers at all.
_PROBE_AFTER_S = 1.0
# How long the second connection may take: this, or a multiple of what the first one took.
_PROBE_S = 1.0
_SLOWER = 4
# How long a port may take to accept TCP after its broker was given up.
_ACCEPTS_S = 0.5
_CLOSING_TURNS = 4  # turns of the loop until the transport under TLS is closed too
# A command waits for no quota that takes longer. At 5 a second, 1,000 new partitions take 200 s.
_MOST_THROTTLED_S = 240.0


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine in a new event loop, and returns its result.

    Ctrl-C cancels the coroutine alone: what it holds is closed while its other tasks still work, for example
    those that renew a lease. Then KeyboardInterrupt is raised, also where the coroutine ended nevertheless.

    `asyncio.run` makes a text of its main task when it ends, with the task's whole result. Here the task has
    no result, because that of a large cluster takes long to print.
    """
    results: list[T] = []

    async def main() -> None:
        try:
            results.append(await work)
        finally:
            for _ in range(_CLOSING_TURNS):
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError

    asyncio.run(main())
    return results[0]


async def for_each(work: Mapping[str, Coroutine[Any, Any, T]]) -> dict[str, T]:
    """Runs all at once and returns every result by name. The first exception ends the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(task) for name, task in work.items()}
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return {name: task.result() for name, task in tasks.items()}


class BrokerConnection:
    """A connection to one broker. Its failures are in words for users."""

    def __init__(self, dialer: Dialer, address: Address, timeout_s: float) -> None:
        self.address = address
        self.where = f"{address[0]}:{address[1]}"
        self.replaceable = False  # whether another broker can answer in its place
        self._dialer = dialer
        self._timeout_s = timeout_s
        self._given_up = False
        self._dial_s = 0.0
        self._silent_s = timeout_s  # for how long it kept silent when it was given up
        self._answered = False  # whether any request after the login was answered
        self._wire: Connection | None = None

    async def open(self) -> Self:
        """Connects and logs in within the timeout as a whole. Raises ClusterFailure with the reason."""
        try:
            await self.dial()
        except WireError as failure:
            raise await self.explain(failure) from None
        return self

    async def dial(self) -> None:
        """Connects and logs in. Raises the data path's own WireError."""
        began = time.monotonic()
        self._wire = await self._dialer.dial(*self.address, "planner", self._timeout_s)
        self._dial_s = time.monotonic() - began

    def give_up(self, silent_s: float) -> TimedOut:
        """Returns the failure of a dial that is cancelled after this time."""
        self._silent_s = round(silent_s, 1)
        self._given_up = True
        return TimedOut(self.where, f"no connection in {silent_s:.1f} s", sent=False)

    async def explain(self, failure: WireError) -> ClusterFailure:
        """Returns why the dial failed. It may ask the port further questions, in a thread."""
        if (
            self._given_up
            and isinstance(failure, TimedOut)
            and await asyncio.to_thread(accepts, self.address, _ACCEPTS_S)
        ):
            failure.reached = Reached.CONNECTED
        explained = await asyncio.to_thread(why_no_connection, failure, self._peer)
        if self._given_up:
            hint = "it is overloaded, paused, or the network drops its answers; others answered"
            return type(explained)(explained.why, hint)
        return explained

    def close(self) -> None:
        """Closes the connection; a pending call raises Closed."""
        if self._wire is not None:
            self._wire.drop()

    @property
    def closed(self) -> bool:
        """Returns whether it can't be used any more, or was never opened."""
        return self._wire is None or self._wire.closed

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """Returns the oldest and newest version of each request that the broker supports."""
        return self._opened.versions

    def set_timeout(self, timeout_s: float) -> None:
        """Sets for how long the broker may send nothing from now on."""
        self._timeout_s = self._silent_s = timeout_s

    async def call(self, request: Request[R]) -> R:
        """Sends a request and returns the answer. Raises ClusterFailure with the reason.

        Metadata without brokers count as no answer: a broker that has just started in ZooKeeper mode names
        none, and knows no topic.
        """
        connection = self._opened
        if connection.throttled_until - asyncio.get_running_loop().time() > _MOST_THROTTLED_S:
            said = f"{self.where} throttles this client for {connection.throttle_s:,.0f} s"
            why = f"{said}, and repl waits for {_MOST_THROTTLED_S:g} s at most"
            raise NoAnswer(why, "a quota of its user or client id is used up; call repl again later")
        try:
            answer = await self._call(request)
        except WireError as failure:
            explain, first = why_no_answer, not self._answered
            raise await asyncio.to_thread(explain, failure, self._peer, first=first) from None
        self._answered = True
        if isinstance(answer, MetadataResponse) and not answer.brokers:
            raise NoAnswer(f"{self.where} has just started: it names no brokers yet")
        return answer

    @property
    def _opened(self) -> Connection:
        assert self._wire is not None, "open it first"
        return self._wire

    @property
    def _peer(self) -> Peer:
        settings: WireSettings = self._dialer.settings
        return Peer(self.address, self.where, settings, self._silent_s)

    async def _call(self, request: Request[R]) -> R:
        """Waits while bytes arrive, up to a limit. Silence for the timeout ends the wait.

        A broker that needs long for an answer still accepts connections; one that is paused does not answer
        them either. So a second connection tells after a short silence whether the wait makes sense.
        """
        connection, loop = self._opened, asyncio.get_running_loop()
        await connection.ready()
        began = loop.time()
        answer = connection.start(request, _LONGEST_ANSWER * self._timeout_s)
        probed = not self.replaceable
        while not answer.done():
            throttled_until = min(connection.throttled_until, began + _MOST_THROTTLED_S)
            last_byte_at = max(began, connection.last_received_at, throttled_until)
            silent_s = loop.time() - last_byte_at
            if silent_s >= self._timeout_s:
                connection.drop()
                raise TimedOut(self.where, f"nothing was heard for {self._timeout_s:g} s", sent=True)
            if not probed and silent_s >= _PROBE_AFTER_S:
                probed = True
                await self._probe(answer)
                continue
            limit_s = self._timeout_s if probed else min(_PROBE_AFTER_S, self._timeout_s)
            await asyncio.wait({answer}, timeout=limit_s - silent_s)
            await asyncio.sleep(0)  # bytes that came while the loop was busy are received first
        return answer.result()

    async def _probe(self, answer: "asyncio.Future[R]") -> None:
        """Connects to the broker a second time. Raises TimedOut if it neither accepts that nor answers."""
        limit_s = min(self._timeout_s, max(_PROBE_S, _SLOWER * self._dial_s))
        probe = asyncio.ensure_future(self._dialer.dial(*self.address, "probe", limit_s))
        either: set[asyncio.Future[Any]] = {answer, probe}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return
            try:
                probe.result()
            except TimedOut:
                self._silent_s = _PROBE_AFTER_S + limit_s
                self._opened.drop()
                raise TimedOut(self.where, "a second connection is not answered either", sent=True) from None
            except WireError:
                return
        finally:
            probe.cancel()
            with contextlib.suppress(WireError, asyncio.CancelledError):
                await (await probe).close()


# The share of the timeout that one of several brokers gets before another is tried.
_TIMEOUT_SHARE = 0.6
# A broker that has not accepted the login after this time no longer delays the attempt at the next one.
_NEXT_AFTER_S = 0.5
# A broker that is restarting refuses connections for a moment.
_ROUNDS = 3
_PAUSE_S = 0.25
# How much memory for answers is kept for the next answer.
_KEPT_BYTES = 8 << 20


class ClusterClient:
    """A ClusterClient is used in one event loop, and closed once. Every failure is a ClusterFailure.

    A broker that sends nothing for `timeout_s` fails; each byte starts the time again. A request to any
    broker is sent to another one then. One connection carries the requests of all callers, and a broker
    handles them in their order, so a caller that must not wait for others has a client of its own.
    """

    def __init__(self, endpoint: ClusterEndpoint, timeout_s: float = TIMEOUT_S) -> None:
        try:
            settings = wire_settings(endpoint.bootstrap, endpoint.settings, endpoint.token_command)
            self._dialer = Dialer(settings, old_brokers=True, buffers=GrowingBuffers(_KEPT_BYTES))
        except ClientSettingsError as wrong:
            raise Refused(str(wrong), f"look at client: of cluster {endpoint.cluster}") from None
        except Unsupported as wrong:
            raise why_no_tls(wrong) from None
        self.name = endpoint.cluster
        self._timeout_s = timeout_s
        self._bootstrap: list[Address] = list(dict.fromkeys(settings.bootstrap))
        self._addresses = list(self._bootstrap)
        self._connecting = asyncio.Lock()
        self._finding_controller = asyncio.Lock()
        self._any: BrokerConnection | None = None
        self._controller: BrokerConnection | None = None
        self._earlier_controllers: list[BrokerConnection] = []
        self._deadline = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections that are not the caller's own. Pending calls raise Closed."""
        for connection in (self._any, self._controller, *self._earlier_controllers):
            if connection is not None:
                connection.close()

    def add_brokers(self, brokers: Iterable[Address]) -> None:
        """Adds addresses that the cluster returned. They are tried after those of the bootstrap."""
        self._addresses = list(dict.fromkeys((*self._bootstrap, *brokers)))

    async def ask(self, request: Request[R]) -> R:
        """Returns the answer of the present broker, or of the next one if it fails."""
        self._deadline = time.monotonic() + self._timeout_s
        while True:
            connection = await self.connection()
            connection.replaceable = len(self._addresses) > 1
            try:
                return await connection.call(request)
            except (Closed, NoAnswer):
                self._drop(connection)
                if time.monotonic() >= self._deadline:
                    raise
                await asyncio.sleep(0 if connection.replaceable else _PAUSE_S)

    async def ask_controller(self, request: Request[R]) -> R:
        """Sends the request once to the controller, or in KRaft mode to a broker that forwards it.

        The caller sends it again after a transient failure: the next call looks for the controller anew.
        """
        async with self._finding_controller:
            controller = self._controller
            if controller is None or controller.closed:
                cluster = await self.ask(AnyMetadataRequest(()))
                addresses = {broker.node_id: (broker.host, broker.port) for broker in cluster.brokers}
                if cluster.controller not in addresses:
                    raise NoAnswer(f"{self.name} has no controller at present")
                controller = self._controller = await self.dial(
                    addresses[cluster.controller], self._timeout_s
                )
        return await controller.call(request)

    def forget_controller(self) -> None:
        """Looks for the controller anew before the next request. Requests under way keep their connection."""
        if self._controller is not None:
            self._earlier_controllers.append(self._controller)
            self._controller = None

    async def ask_coordinator(self, group: str, request: Request[R]) -> R:
        """Sends a request to the coordinator of a group."""
        (coordinator,) = await self.ask(FindCoordinatorRequest(CoordinatorKind.GROUP, [group]))
        if coordinator.error:
            raise RequestRefused(coordinator.error, coordinator.message)
        connection = await self.dial((coordinator.host, coordinator.port), self._timeout_s)
        try:
            return await connection.call(request)
        finally:
            connection.close()

    async def dial_leader(self, at: TopicPartition) -> tuple[BrokerConnection, bytes]:
        """Returns the caller's own connection to the leader of a partition, and the topic's id.

        The id is sixteen zero bytes before Kafka 2.8. Raises RequestRefused with the error of the topic, or
        where it has no leader now.
        """
        cluster = await self.ask(AnyMetadataRequest((at.topic,)))
        topic = next((topic for topic in cluster.topics if topic.name == at.topic), None)
        if topic is None:
            raise RequestRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition = topic.partitions.get(at.partition)
        brokers = {broker.node_id: (broker.host, broker.port) for broker in cluster.brokers}
        if topic.error and topic.error is not ErrorCode.LEADER_NOT_AVAILABLE:
            raise RequestRefused(topic.error)
        if partition is None or partition.leader not in brokers:
            raise RequestRefused(ErrorCode.LEADER_NOT_AVAILABLE)
        return await self.dial(brokers[partition.leader], self._timeout_s), topic.id

    async def connection(self) -> BrokerConnection:
        """Returns the open connection, or a new one to the first broker that accepts it."""
        async with self._connecting:
            if self._any is None or self._any.closed:
                if time.monotonic() >= self._deadline:
                    self._deadline = time.monotonic() + self._timeout_s
                self._any = await self._connect()
            return self._any

    async def dial(self, address: Address, timeout_s: float) -> BrokerConnection:
        """Returns the caller's own connection to this broker. `timeout_s` limits the connecting only."""
        connection = BrokerConnection(self._dialer, address, min(timeout_s, self._timeout_s))
        await connection.open()
        connection.set_timeout(self._timeout_s)
        return connection

    async def dial_each(
        self, addresses: Mapping[int, Address], timeout_s: float, *, hurry: bool = False
    ) -> "BrokerConnections":
        """Connects to all brokers at once.

        With `hurry`, one that takes much longer than the others is given up before the timeout.
        """
        limit_s = min(timeout_s, self._timeout_s)
        attempts = {node: BrokerConnection(self._dialer, at, limit_s) for node, at in addresses.items()}
        failures = await _open_each(list(attempts.values()), hurry)
        reached = BrokerConnections()
        for node, attempt in attempts.items():
            if attempt in failures:
                reached.unreachable[node] = await attempt.explain(failures[attempt])
            else:
                attempt.set_timeout(self._timeout_s)
                reached.connections[node] = attempt
        return reached

    async def dial_live(self, timeout_s: float) -> "BrokerConnections":
        """Connects to all brokers that the cluster lists now."""
        listed = (await self.ask(AnyMetadataRequest(()))).brokers
        return await self.dial_each(
            {broker.node_id: (broker.host, broker.port) for broker in listed}, timeout_s
        )

    def _drop(self, broken: BrokerConnection) -> None:
        """Closes the connection. The next attempt starts with another broker."""
        if broken is self._any:
            self._any = None
            if broken.address in self._addresses:
                self._addresses.remove(broken.address)
                self._addresses.append(broken.address)
        broken.close()

    async def _connect(self) -> BrokerConnection:
        """Returns a connection to the broker that accepts the login first."""
        for attempt in range(_ROUNDS):
            opened, failures = await _first_to_open(self._attempts())
            if opened is not None:
                return opened
            for failed, failure in failures:  # one that no retry can mend decides, else the newest
                last = await failed.explain(failure)
                if not last.transient:
                    break
            if not last.transient or attempt + 1 == _ROUNDS or time.monotonic() >= self._deadline:
                break
            await asyncio.sleep(_PAUSE_S)
        raise last

    def _attempts(self) -> Iterator[BrokerConnection]:
        """Yields a connection for each broker. Each has only what is left of the time when it is opened."""
        share = 1.0 if len(self._addresses) == 1 else _TIMEOUT_SHARE
        for number, address in enumerate(tuple(self._addresses)):
            left = self._deadline - time.monotonic()
            if number and left <= 0:
                return
            limit_s = max(0.1, min(left, self._timeout_s * share))
            yield BrokerConnection(self._dialer, address, limit_s)


@dataclass(slots=True)
class BrokerConnections:
    """The caller's own connections to brokers, by id.

    `unreachable` has the failure of each broker that can't be reached.
    """

    connections: dict[int, BrokerConnection] = field(default_factory=dict)
    unreachable: dict[int, ClusterFailure] = field(default_factory=dict)

    def close(self) -> None:
        """Closes all connections."""
        for connection in self.connections.values():
            connection.close()
        self.connections.clear()


def run_at(
    endpoint: ClusterEndpoint,
    work: Callable[[ClusterClient], Coroutine[Any, Any, T]],
    timeout_s: float = TIMEOUT_S,
) -> T:
    """Runs the work with a client of the cluster, in an event loop of its own."""

    async def with_client() -> T:
        async with ClusterClient(endpoint, timeout_s) as client:
            return await work(client)

    return run(with_client())


Failures = Sequence[tuple[BrokerConnection, WireError]]


async def _first_to_open(
    attempts: Iterator[BrokerConnection],
) -> tuple[BrokerConnection | None, Failures]:
    """Returns the first connection that opens, or None and the failure of each attempt.

    An attempt starts when the one before has failed, or has been silent for a moment. A refused login ends
    them all: further attempts with the same credentials could lock the account.
    """
    dials: dict[asyncio.Task[None], BrokerConnection] = {}
    failures: list[tuple[BrokerConnection, WireError]] = []
    patience_s: float | None = _NEXT_AFTER_S
    try:
        while True:
            if (following := next(attempts, None)) is not None:
                dials[asyncio.ensure_future(following.dial())] = following
            else:
                patience_s = None
            if not dials:
                return None, failures
            ended, _ = await asyncio.wait(dials, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
            for dial in ended:
                attempt = dials.pop(dial)
                try:
                    dial.result()
                except WireError as failure:
                    failures.append((attempt, failure))
                    if not isinstance(failure, ConnectionFailure):
                        return None, failures
                else:
                    return attempt, failures
    finally:
        for dial, attempt in dials.items():
            dial.cancel()
            attempt.close()
        await asyncio.gather(*dials, return_exceptions=True)


async def _open_each(attempts: Sequence[BrokerConnection], hurry: bool) -> dict[BrokerConnection, WireError]:
    """Opens all connections at once, and returns the failures.

    With `hurry`, the last ones may take only a multiple of the time that those before them took.
    """
    began = time.monotonic()
    dials = {asyncio.ensure_future(attempt.dial()): attempt for attempt in attempts}
    waiting = set(dials)
    failures: dict[BrokerConnection, WireError] = {}
    limit_s: float | None = None
    try:
        while waiting:
            left_s = None if limit_s is None else max(0.0, began + limit_s - time.monotonic())
            ended, waiting = await asyncio.wait(waiting, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            for dial in ended:
                try:
                    dial.result()
                except WireError as failure:
                    failures[dials[dial]] = failure
                else:
                    if hurry:
                        limit_s = max(_PROBE_S, _SLOWER * (time.monotonic() - began))
            if not ended:
                for dial in waiting:
                    failures[dials[dial]] = dials[dial].give_up(time.monotonic() - began)
                break
    finally:
        for dial in waiting:
            dial.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    return failures
