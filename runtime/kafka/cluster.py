"""One Kafka cluster as the slot sees it: brokers, leaders, coordinators, and connections that come back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from runtime.contract.client.values import WireSettings
from runtime.kafka.codes import ErrorCode
from runtime.kafka.connection import Connection
from runtime.kafka.dial import Dialer
from runtime.kafka.errors import BrokerError, ConnectionFailure, Disconnected, Unsupported
from runtime.kafka.hedge import SILENCE_S, first_answer
from runtime.kafka.links import Links
from runtime.kafka.protocol.fetch import LeaderHint
from runtime.kafka.protocol.metadata import (
    NO_LEADER,
    Broker,
    MetadataByIdRequest,
    MetadataRequest,
    MetadataResponse,
    Partition,
    TopicMetadata,
)
from runtime.kafka.protocol.request import Request
from runtime.kafka.protocol.transactions import (
    CoordinatorKind,
    FindCoordinatorRequest,
    FindCoordinatorsRequest,
    FoundCoordinator,
)
from runtime.kafka.timing import Shared, in_time, shuffled
from runtime.kafka.topics import TopicCache

R = TypeVar("R")
CONTROL = "control"
ATTEMPT_S = 10.0  # for one broker, where another could answer as well


class KafkaCluster:
    """Made by `open`, used in one event loop, closed once. Methods raise wire errors and nothing else."""

    def __init__(self, settings: WireSettings) -> None:
        self.settings = settings
        self.cluster_id = ""
        self.brokers: dict[int, Broker] = {}
        self._dialer = Dialer(settings)
        self._links = Links(self._dialer, lambda node: self.brokers.get(node))
        self._topics = TopicCache(settings.metadata_max_age_s)
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self._asking = asyncio.Lock()
        self._relearning: Shared[MetadataResponse] = Shared()
        self._addresses_doubted = False
        self._silent_until: dict[int, float] = {}

    @classmethod
    async def open(cls, settings: WireSettings) -> Self:
        """Reaches any one bootstrap broker and learns the cluster from it."""
        cluster = cls(settings)
        try:
            await cluster._bootstrap(MetadataRequest(()))
        except BaseException:
            await cluster.close()
            raise
        return cluster

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._relearning.stop()
        await self._links.close()

    def kept(self, node: int, purpose: str) -> Connection | None:
        """The one that is there, if it can be used now: it is open, and neither too old nor too long idle."""
        return self._links.kept(node, purpose)

    async def connection(self, node: int, purpose: str, within: float | None = None) -> Connection:
        """Open, introduced and kept. Ask again before each use: it may have been replaced."""
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
        connection = await self.connection(node, purpose, within)
        return await connection.call(request, within)

    async def topics(self, names: Iterable[str], fresh: bool = False) -> dict[str, TopicMetadata]:
        """By name; one that does not exist, or may not be seen, is there with its error.

        From the cache, unless `fresh`, or what is cached has an error, no leader, or is old.
        """
        wanted = list(dict.fromkeys(names))
        began = asyncio.get_running_loop().time()
        if fresh or self._topics.stale(wanted, began):
            async with self._asking:
                # Another caller may have asked meanwhile.
                stale = [
                    name
                    for name in (wanted if fresh else self._topics.stale(wanted, began))
                    if self._topics.heard_at(name) <= began
                ]
                if stale:
                    await self.ask_any(MetadataRequest(stale))
        return {name: topic for name in wanted if (topic := self._topics.by_name(name)) is not None}

    async def topics_by_id(self, ids: Iterable[bytes]) -> dict[bytes, TopicMetadata]:
        """Asked for now. An id that the cluster does not know is there with its error and an empty name."""
        response = await self.ask_any(MetadataByIdRequest((), tuple(ids)))
        return {topic.id: topic for topic in response.topics}

    async def all_topics(self) -> dict[str, TopicMetadata]:
        response = await self.ask_any(MetadataRequest(None))
        return {topic.name: topic for topic in response.topics}

    def topic(self, name: str) -> TopicMetadata | None:
        """As it was last heard of; asks nobody."""
        return self._topics.by_name(name)

    def topic_by_id(self, topic_id: bytes) -> TopicMetadata | None:
        return self._topics.by_id(topic_id)

    def leader(self, topic: str, partition: int) -> Partition | None:
        """The partition as it was last heard of, if it had a leader then."""
        known = self._topics.by_name(topic)
        found = known.partitions.get(partition) if known else None
        return found if found is not None and found.leader != NO_LEADER else None

    def heard_at(self, topic: str) -> float:
        """When it was last told of, by the event loop's time."""
        return self._topics.heard_at(topic)

    def doubt(self, topic: str) -> None:
        """Who was taken for a leader failed: the topic is asked for before it is used again."""
        self._topics.doubt(topic)

    def learn(self, topic_id: bytes, partition: int, hint: LeaderHint) -> None:
        self._topics.learn(topic_id, partition, hint)

    async def coordinator(self, kind: CoordinatorKind, key: str) -> int:
        """The broker that coordinates a group or a transactional id; a BrokerError may be retriable."""
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        found = (await self.coordinators(kind, [key])).get(key)
        if isinstance(found, int):
            return found
        unknown = ErrorCode.COORDINATOR_NOT_AVAILABLE
        raise found or BrokerError(unknown, f"the coordinator of {key}", "no answer for it")

    async def coordinators(self, kind: CoordinatorKind, keys: Iterable[str]) -> dict[str, int | BrokerError]:
        """Of many at once; what is known is not asked again."""
        wanted = list(keys)
        found: dict[str, int | BrokerError] = {
            key: self._coordinators[kind, key] for key in wanted if (kind, key) in self._coordinators
        }
        missing = [key for key in wanted if key not in found]
        if not missing:
            return found
        for one in await self._find_coordinators(kind, missing):
            if one.error:
                found[one.key] = BrokerError(one.error, f"the coordinator of {one.key}", one.message)
                continue
            found[one.key] = self._coordinators[kind, one.key] = one.node_id
            if one.node_id not in self.brokers:
                self.brokers[one.node_id] = Broker(one.node_id, one.host, one.port)
        return found

    async def _find_coordinators(self, kind: CoordinatorKind, keys: Sequence[str]) -> list[FoundCoordinator]:
        """Asks for many at once, or one by one where a broker is older than Kafka 3.0."""
        if len(keys) > 1:
            with suppress(Unsupported):
                return list((await self.ask_any(FindCoordinatorsRequest(kind, keys))).coordinators)
        found: list[FoundCoordinator] = []
        for key in keys:
            found += (await self.ask_any(FindCoordinatorRequest(kind, [key]))).coordinators
        return found

    def know_coordinator(self, kind: CoordinatorKind, key: str, node: int) -> None:
        """It was told by the coordinator itself."""
        self._coordinators[kind, key] = node

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        self._coordinators.pop((kind, key), None)

    async def ask_any(self, request: Request[R]) -> R:
        """Asks brokers until one answers: the connected first, then those that did not fail lately. One that
        keeps silent does not keep the caller waiting: another is asked too.

        For questions only: it may ask twice, and its failure counts as if nothing was sent.
        """
        nodes = self._candidates()
        known = {(broker.host, broker.port) for node in nodes if (broker := self.brokers.get(node))}
        others = [one for one in self.settings.bootstrap if one not in known]
        failure: ConnectionFailure | None = None
        if nodes:
            try:
                return await first_answer(
                    (
                        *(partial(self._ask, node, request) for node in nodes),
                        *(partial(self._ask_address, *one, request) for one in shuffled(others)),
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
            asked = self._links.connection(node, CONTROL)
            connection = await in_time(asked, ATTEMPT_S, f"connecting to broker {node}")
            response = await connection.call(request, ATTEMPT_S)
        except (ConnectionFailure, asyncio.CancelledError):
            if loop.time() - began >= SILENCE_S:
                self._silent_until[node] = loop.time() + ATTEMPT_S
            raise
        self._hear(response, connection.where)
        return response

    def _candidates(self) -> list[int]:
        """Brokers that wait after a failure are left to the bootstrap addresses, which don't wait. Those that
        kept silent just now come last.
        """
        now = asyncio.get_running_loop().time()
        connected = set(self._links.connected(CONTROL))
        nodes = shuffled(node for node in self.brokers if self._links.delay(node) <= 0)
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
            return await first_answer(partial(asking, *one) for one in shuffled(self.settings.bootstrap))
        except ConnectionFailure:
            why = "; ".join(str(error) for error in failures)
            raise Disconnected("no bootstrap broker answers", why, sent=False) from None

    async def _ask_address(self, host: str, port: int, request: Request[R]) -> R:
        dialled = self._dialer.dial(host, port, "bootstrap")
        connection = await in_time(dialled, ATTEMPT_S, f"connecting to {host}:{port}")
        try:
            self._hear(await self._first_answer(connection), connection.where)
            response = await connection.call(request, ATTEMPT_S)
        finally:
            await connection.close()
        self._hear(response, connection.where)
        return response

    async def _first_answer(self, connection: Connection) -> MetadataResponse:
        try:
            return await connection.call(MetadataRequest(()), ATTEMPT_S)
        except Disconnected as error:
            if self.settings.security.sasl:
                raise
            why = f"{error.why}; does this listener want SASL, and security.protocol not?"
            raise Disconnected(error.where, why, sent=False) from None

    def _hear(self, response: object, where: str) -> None:
        if not isinstance(response, MetadataResponse):
            return
        if self.cluster_id and response.cluster_id != self.cluster_id:
            why = f"this is cluster {response.cluster_id}, not {self.cluster_id} as before"
            raise BrokerError(ErrorCode.INCONSISTENT_CLUSTER_ID, where, why)
        self.cluster_id = response.cluster_id
        if response.brokers:
            self.brokers = {broker.node_id: broker for broker in response.brokers}
        self._topics.store(response.topics, asyncio.get_running_loop().time())
