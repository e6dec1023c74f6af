"""This module connects to one Kafka cluster: brokers, leaders, coordinators, and renewed connections."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Self, TypeVar

from msgspec.structs import replace

from runtime.contract.client import settings as client
from runtime.contract.client.secrets import ClientSecrets
from runtime.contract.client.settings import WireSettings
from runtime.contract.spec.cluster import ClusterSpec
from runtime.kafka.connection import Connection
from runtime.kafka.dial import Dialer, Links
from runtime.kafka.errors import (
    BrokerError,
    ConnectionFailure,
    Disconnected,
    ErrorCode,
    TimedOut,
    Unsupported,
    WireError,
)
from runtime.kafka.protocol.fetch import LeaderHint
from runtime.kafka.protocol.last_decoded import LastDecoded
from runtime.kafka.protocol.metadata import (
    NO_LEADER,
    Broker,
    DecodedTopics,
    MetadataRequest,
    MetadataResponse,
    Partition,
    TopicMetadata,
)
from runtime.kafka.protocol.request import Request
from runtime.kafka.protocol.transactions import (
    CoordinatorKind,
    FindCoordinatorRequest,
    FoundCoordinator,
)
from runtime.kafka.timing import SILENCE_S, Gathered, Shared, first_answer, in_time, shuffled
from runtime.kafka.topics import TopicCache

R = TypeVar("R")
CONTROL = "control"
CHANGES = "changes"  # of topics and ACL rules, which may take seconds
_KEYS_TOGETHER = 1_000  # of several callers, in one request
_METADATA_BYTES = 16 << 20  # of the last responses: a list of 50,000 topics takes 4 to 8 MB
_LOOKUPS_AT_ONCE = 8
_WATCHED_S = 15.0  # a topic that nobody looked at for so long is not asked for again
ATTEMPT_S = 10.0  # for one broker, where another could answer as well


class KafkaCluster:
    """A KafkaCluster is made by `open`, used in one event loop, and closed once.

    Its methods raise only wire errors.
    """

    def __init__(self, settings: WireSettings) -> None:
        self.settings = settings
        self.cluster_id = ""
        self.brokers: dict[int, Broker] = {}
        self._dialer = Dialer(settings)
        self._links = Links(self._dialer, lambda node: self.brokers.get(node))
        self._topics = TopicCache(settings.metadata_max_age_s)
        self.decoded: LastDecoded[DecodedTopics] = LastDecoded(_METADATA_BYTES)
        self._all: tuple[tuple[TopicMetadata, ...], Mapping[str, TopicMetadata]] = (), {}
        # The requests that several callers share, by kind of the request, and broker where one is meant.
        self.gathered: dict[Hashable, Gathered[Any, Any, Any]] = {}
        # The locks of connections that have one request under way, by broker and purpose.
        self.turns: defaultdict[tuple[int, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self._asking = asyncio.Lock()
        self._wanted: dict[str, None] = {}  # topics of callers that wait for their turn to ask
        self._watched: dict[str, float] = {}  # topics of callers of `recent_topics`, and when they called
        self._relearning: Shared[MetadataResponse] = Shared()
        self._addresses_doubted = False
        self._silent_until: dict[int, float] = {}

    @classmethod
    async def open(cls, settings: WireSettings) -> Self:
        """Connects to any bootstrap broker and reads the cluster's metadata from it."""
        cluster = cls(settings)
        try:
            await cluster._bootstrap(MetadataRequest(()))
        except BaseException:
            await cluster.close()
            raise
        return cluster

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        try:
            await self._relearning.stop()
        finally:
            await self._links.close()

    def kept(self, node: int, purpose: str) -> Connection | None:
        """Returns the existing connection if it is open, and neither too old nor idle for too long."""
        return self._links.kept(node, purpose)

    def failed_lately(self, node: int) -> bool:
        """Returns whether the last attempts to connect to a broker failed, and the next is not due yet."""
        return self._links.delay(node) > 0

    async def connection(self, node: int, purpose: str, within: float | None = None) -> Connection:
        """Returns an open, authenticated connection.

        Call this again before each use: the connection may be replaced.
        """
        kept = self.kept(node, purpose)
        if kept is not None:
            return kept
        limit = self.settings.request_timeout_s if within is None else within
        try:
            return await in_time(self._connection(node, purpose), limit, f"connecting to broker {node}")
        except ConnectionFailure:
            self._addresses_doubted = True
            raise

    async def _connection(self, node: int, purpose: str) -> Connection:
        if self._addresses_doubted or node not in self.brokers:
            self._addresses_doubted = False
            try:
                await self._relearning.run(lambda: self.ask_any(MetadataRequest(())))
            except ConnectionFailure:
                if node not in self.brokers:
                    raise
        return await self._links.connection(node, purpose)

    async def call(
        self, node: int, request: Request[R], purpose: str = CONTROL, within: float | None = None
    ) -> R:
        """Sends a request to a broker, and returns its response within the time.

        A request without a response closes its connection. Callers share the one for CONTROL, so a caller
        with less time than ATTEMPT_S only stops waiting.
        """
        connection = await self.connection(node, purpose, within)
        if purpose != CONTROL or within is None or within >= ATTEMPT_S:
            return await connection.call(request, within)
        try:
            async with asyncio.timeout(within):
                return await connection.call(request, ATTEMPT_S)
        except TimeoutError:
            why = f"no answer to {request.API.name} in {within:g} s"
            raise TimedOut(connection.where, why, sent=True) from None

    async def ask_controller(self, request: Request[R], within: float | None = None) -> R:
        """Sends a change once to the controller, or in KRaft mode to a broker that forwards it."""
        controller = (await self.ask_any(MetadataRequest(()))).controller
        if controller not in self.brokers:
            raise Disconnected("the controller", "the cluster has none at present", sent=False)
        return await self.call(controller, request, CHANGES, within)

    async def topics(self, names: Iterable[str], fresh: bool = False) -> dict[str, TopicMetadata]:
        """Returns topics by name; a topic that does not exist, or that may not be described, has its error.

        From the cache, unless `fresh`, or what is cached has an error, no leader, or is old. Callers that
        wait at the same time share a request.
        """
        wanted = list(dict.fromkeys(names))
        began = asyncio.get_running_loop().time()
        if fresh or self._topics.stale(wanted, began):
            self._wanted.update(dict.fromkeys(wanted))
            async with self._asking:
                await asyncio.sleep(0)  # tasks that were woken up together ask together
                # Another caller may have refreshed the metadata meanwhile.
                stale = [
                    name
                    for name in (wanted if fresh else self._topics.stale(wanted, began))
                    if self._topics.refreshed_at(name) <= began
                ]
                if stale:
                    names = sorted(self._wanted.keys() | stale)
                    self._wanted.clear()
                    await self.ask_any(MetadataRequest(names, decoded=self.decoded))
                else:
                    for name in wanted:
                        self._wanted.pop(name, None)
        return {name: topic for name in wanted if (topic := self._topics.by_name(name)) is not None}

    async def recent_topics(self, names: Iterable[str], max_age_s: float) -> dict[str, TopicMetadata]:
        """Returns topics as `topics` does, from metadata that is at most `max_age_s` old.

        It is for callers that look at their topics periodically. A request names the topics of all of them,
        so they share it, and brokers repeat the same response as long as nothing changes.
        """
        wanted = list(dict.fromkeys(names))
        now = asyncio.get_running_loop().time()
        self._watched.update(dict.fromkeys(wanted, now))
        async with self._asking:
            await asyncio.sleep(0)  # tasks that were woken up together ask together
            if any(self._topics.refreshed_at(name) < now - max_age_s for name in wanted):
                self._watched = {name: at for name, at in self._watched.items() if now - at < _WATCHED_S}
                await self.ask_any(MetadataRequest(sorted(self._watched), decoded=self.decoded))
        return {name: topic for name in wanted if (topic := self._topics.by_name(name)) is not None}

    async def all_topics(self) -> Mapping[str, TopicMetadata]:
        """Returns all topics by name: the same object as before where a broker repeats its response."""
        topics = (await self.ask_any(MetadataRequest(None, decoded=self.decoded))).topics
        if topics is not self._all[0]:
            self._all = topics, {topic.name: topic for topic in topics}
        return self._all[1]

    def topic(self, name: str) -> TopicMetadata | None:
        """Returns the topic from the cache, without a request."""
        return self._topics.by_name(name)

    def topic_by_id(self, topic_id: bytes) -> TopicMetadata | None:
        return self._topics.by_id(topic_id)

    def leader(self, topic: str, partition: int) -> Partition | None:
        """Returns the partition from the cache, if it had a leader at that time."""
        metadata = self._topics.by_name(topic)
        leader = metadata.partitions.get(partition) if metadata else None
        return leader if leader is not None and leader.leader != NO_LEADER else None

    def refreshed_at(self, topic: str) -> float:
        """Returns when the topic's metadata were last received, by the event loop's time."""
        return self._topics.refreshed_at(topic)

    def doubt(self, topic: str) -> None:
        """Marks the topic's metadata as stale after its leader failed; the next use refreshes them."""
        self._topics.doubt(topic)

    def learn(self, topic_id: bytes, partition: int, hint: LeaderHint) -> None:
        self._topics.learn(topic_id, partition, hint)

    async def coordinator(self, kind: CoordinatorKind, key: str) -> int:
        """Returns the broker that coordinates a group or a transactional id.

        Raises a BrokerError, which may be retriable.
        """
        node = self._coordinators.get((kind, key))
        if node is not None:
            return node
        looked_up = (await self.coordinators(kind, [key])).get(key)
        if isinstance(looked_up, int):
            return looked_up
        unknown = ErrorCode.COORDINATOR_NOT_AVAILABLE
        raise looked_up or BrokerError(unknown, f"the coordinator of {key}", "no answer for it")

    async def coordinators(self, kind: CoordinatorKind, keys: Iterable[str]) -> dict[str, int | BrokerError]:
        """Returns many coordinators; those in the cache are not requested again.

        Callers that wait at the same time share a request.
        """
        wanted = list(keys)
        nodes: dict[str, int | BrokerError] = {
            key: self._coordinators[kind, key] for key in wanted if (kind, key) in self._coordinators
        }
        missing = [key for key in wanted if key not in nodes]
        if missing:
            find = partial(self._find_coordinators, kind)
            gathered = self.gathered.setdefault(kind, Gathered(find, _KEYS_TOGETHER, resend=True))
            answers = await gathered.ask(dict.fromkeys(missing))
            nodes |= {key: answers[key] for key in missing if key in answers}
        return nodes

    async def _find_coordinators(
        self, kind: CoordinatorKind, keys: Iterable[str]
    ) -> dict[str, int | BrokerError]:
        """Asks for coordinators, and keeps those that were found."""
        nodes: dict[str, int | BrokerError] = {}
        for coordinator in await self._ask_for_coordinators(kind, list(keys)):
            if coordinator.error:
                nodes[coordinator.key] = BrokerError(
                    coordinator.error, f"the coordinator of {coordinator.key}", coordinator.message
                )
                continue
            nodes[coordinator.key] = self._coordinators[kind, coordinator.key] = coordinator.node_id
            if coordinator.node_id not in self.brokers:
                self.brokers[coordinator.node_id] = Broker(
                    coordinator.node_id, coordinator.host, coordinator.port
                )
        return nodes

    async def _ask_for_coordinators(
        self, kind: CoordinatorKind, keys: Sequence[str]
    ) -> Sequence[FoundCoordinator]:
        """Asks in one request, or in one request for each where a broker is older than Kafka 3.0."""
        if len(keys) > 1:
            with suppress(Unsupported):
                return await self.ask_any(FindCoordinatorRequest(kind, keys))
        left = iter(keys)
        coordinators: list[FoundCoordinator] = []

        async def ask() -> None:
            for key in left:
                coordinators.extend(await self.ask_any(FindCoordinatorRequest(kind, [key])))

        try:
            async with asyncio.TaskGroup() as lookups:
                for _ in range(min(_LOOKUPS_AT_ONCE, len(keys))):
                    lookups.create_task(ask())
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return coordinators

    def know_coordinators(
        self, kind: CoordinatorKind, nodes: Mapping[str, int], *, complete: bool = False
    ) -> None:
        """Stores coordinators that identified themselves. With `complete`, no other key has one any more."""
        if complete:
            gone = [known for known in self._coordinators if known[0] is kind and known[1] not in nodes]
            for known in gone:
                del self._coordinators[known]
        self._coordinators.update({(kind, key): node for key, node in nodes.items()})

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        self._coordinators.pop((kind, key), None)

    async def ask_any(self, request: Request[R]) -> R:
        """Sends a request to brokers until one answers.

        Connected brokers come first, then those that did not fail lately. While one broker is silent, another
        gets the request too. Use it only for requests that read: it may send them twice, and its failure
        counts as if nothing was sent.
        """
        nodes = self._candidates()
        brokers = {(broker.host, broker.port) for node in nodes if (broker := self.brokers.get(node))}
        others = [address for address in self.settings.bootstrap if address not in brokers]
        failure: ConnectionFailure | None = None
        if nodes:
            try:
                return await first_answer(
                    (
                        *(partial(self._ask, node, request) for node in nodes),
                        *(partial(self._ask_address, *address, request) for address in shuffled(others)),
                    )
                )
            except ConnectionFailure as error:
                failure = error
        try:
            return await self._bootstrap(request)
        except ConnectionFailure as error:
            first = failure or error
            raise Disconnected(first.where, first.why, sent=False) from None

    async def _ask(self, node: int, request: Request[R]) -> R:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            connecting = self._links.connection(node, CONTROL)
            connection = await in_time(connecting, ATTEMPT_S, f"connecting to broker {node}")
            response = await connection.call(request, ATTEMPT_S)
        except (ConnectionFailure, asyncio.CancelledError):
            if loop.time() - began >= SILENCE_S:
                self._silent_until[node] = loop.time() + ATTEMPT_S
            raise
        self._learn(response, connection.where)
        return response

    def _candidates(self) -> list[int]:
        """Returns the brokers to try, in order; those that were silent just now come last.

        A broker that is in backoff after a failure is left out: the bootstrap addresses, which have no
        backoff, stand for it.
        """
        now = asyncio.get_running_loop().time()
        connected = {node for node in self.brokers if self._links.kept(node, CONTROL) is not None}
        nodes = shuffled(node for node in self.brokers if not self.failed_lately(node))
        silent = {node for node in nodes if self._silent_until.get(node, 0.0) > now}
        return sorted(nodes, key=lambda node: (node in silent, node not in connected))

    async def _bootstrap(self, request: Request[R]) -> R:
        failures: list[ConnectionFailure] = []

        async def asking(host: str, port: int) -> R:
            try:
                return await self._ask_address(host, port, request)
            except ConnectionFailure as error:
                failures.append(error)
                raise

        try:
            return await first_answer(
                partial(asking, *address) for address in shuffled(self.settings.bootstrap)
            )
        except ConnectionFailure:
            why = "; ".join(str(error) for error in failures)
            raise Disconnected("no bootstrap broker answers", why, sent=False) from None

    async def _ask_address(self, host: str, port: int, request: Request[R]) -> R:
        dialled = self._dialer.dial(host, port, "bootstrap")
        connection = await in_time(dialled, ATTEMPT_S, f"connecting to {host}:{port}")
        try:
            self._learn(await self._first_answer(connection), connection.where)
            response = await connection.call(request, ATTEMPT_S)
        finally:
            await connection.close()
        self._learn(response, connection.where)
        return response

    async def _first_answer(self, connection: Connection) -> MetadataResponse:
        try:
            return await connection.call(MetadataRequest(()), ATTEMPT_S)
        except Disconnected as error:
            if self.settings.security.sasl:
                raise
            why = f"{error.why}; does this listener want SASL, and security.protocol not?"
            raise Disconnected(error.where, why, sent=False) from None

    def _learn(self, response: object, where: str) -> None:
        """Stores the metadata of a response. Raises Disconnected for a response without brokers.

        A broker that has just started answers so before it knows the cluster, and that no topic exists.
        """
        if not isinstance(response, MetadataResponse):
            return
        if not response.brokers:
            raise Disconnected(where, "it names no brokers yet: it has just started", sent=False)
        if self.cluster_id and response.cluster_id != self.cluster_id:
            why = f"this is cluster {response.cluster_id}, not {self.cluster_id} as before"
            raise BrokerError(ErrorCode.INCONSISTENT_CLUSTER_ID, where, why)
        self.cluster_id = response.cluster_id
        self.brokers = {broker.node_id: broker for broker in response.brokers}
        self._topics.store(response.topics, asyncio.get_running_loop().time())


class WrongCluster(WireError):
    """Another cluster answers than the pinned one; nothing is done there."""


class UnknownCluster(WireError):
    """A record names a cluster that is not in the spec with which the job was started."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the cluster {name!r} is not in the spec that this job was started with: it is not reached; "
            "an apply that starts the job anew brings it"
        )


def named(spec: ClusterSpec, client_id: str) -> ClusterSpec:
    """Returns the cluster with this client id, unless the topology sets one."""
    if "client.id" in spec.client:
        return spec
    return replace(spec, client={**spec.client, "client.id": client_id})


async def opened(name: str, spec: ClusterSpec, environ: Mapping[str, str]) -> KafkaCluster:
    """Opens the cluster. Raises WireError, WrongCluster, ClientSettingsError."""
    secrets = ClientSecrets(environ)
    settings = secrets.resolve(spec.bootstrap, spec.client)
    wire = client.wire_settings(spec.bootstrap, settings, secrets.token_command(name))
    cluster = await KafkaCluster.open(wire)
    if spec.id is not None and cluster.cluster_id != spec.id:
        await cluster.close()
        raise WrongCluster(f"{name} is cluster {cluster.cluster_id}, pinned is {spec.id}")
    return cluster
