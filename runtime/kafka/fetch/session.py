"""An incremental fetch session at one broker: what has not changed since the last fetch is not said again.

The broker remembers the partitions and where each is read from; a fetch of a thousand idle partitions is a
few dozen bytes each way. In a session the broker itself moves a partition that had data to the end of its
order, so a full response starves nobody; without one (its cache is full) the order is kept here.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from runtime.contract.client.values import WireSettings
from runtime.contract.topic_ids import is_from_kafka, is_other_topic
from runtime.kafka.codes import ErrorCode
from runtime.kafka.errors import BrokerError, ConnectionFailure
from runtime.kafka.protocol.fetch import (
    FULL_SESSION_EPOCH,
    NO_SESSION_EPOCH,
    FetchedPartition,
    FetchedTopic,
    FetchFrom,
    FetchRequest,
    FetchResponse,
    Isolation,
    unknown_topic,
)
from runtime.kafka.protocol.metadata import MetadataRequest, TopicMetadata
from runtime.kafka.protocol.request import Request
from runtime.kafka.timing import in_time

_LOST_SESSION = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
_HIGHEST_EPOCH = 0x7FFFFFFF
_NO_SESSION = 0
_FAREWELL_S = 1.0

Key = tuple[bytes, int]
R = TypeVar("R")


class Caller(Protocol):
    """What a session needs of a `Cluster`."""

    @property
    def settings(self) -> WireSettings: ...

    def topic_by_id(self, topic_id: bytes) -> TopicMetadata | None: ...

    async def call(self, node: int, request: Request[R], purpose: str, within: float | None) -> R: ...


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The broker answers after `max_wait_ms`, or sooner with `min_bytes`. A batch larger than a limit still
    comes, alone; all others respect it."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 32 << 20


class FetchSession:
    """One fetch at a time; `want` and `forget` act on the next one.

    A partition stays wanted at its position until `want` moves it: after each answer, the caller says where
    to go on. A partition that was answered with an error (or a diverging epoch) is wanted no more, so that
    the caller sets the pace of trying again: want it once more here, or in the session of its new leader.
    A broker before Kafka 3.1 is asked by name. A recreated topic would go on under its name there, so its ids
    are asked for after the records, and a topic that is another one is answered with UNKNOWN_TOPIC_ID.
    `answered_ms` is when the broker last answered for all that it was told: what it left out has no news.
    """

    def __init__(
        self,
        cluster: Caller,
        node: int,
        limits: FetchLimits,
        isolation: Isolation = Isolation.READ_COMMITTED,
        purpose: str = "fetch",
    ) -> None:
        self.node = node
        self.limits = limits
        self.answered_ms = 0
        self._cluster = cluster
        self._isolation = isolation
        self._purpose = purpose
        self._wanted: dict[Key, FetchFrom] = {}
        self._told: dict[Key, FetchFrom] = {}
        self._changed: set[Key] = set()
        self._session_id = _NO_SESSION
        self._epoch = FULL_SESSION_EPOCH
        self._anew = False
        self._by_name = False
        self._topics: dict[bytes, FetchedTopic] = {}
        self._with_first_ids: dict[bytes, FetchedTopic] = {}  # of these, what the caller names by a name id

    def __len__(self) -> int:
        return len(self._wanted)

    def want(self, topic_id: bytes, partition: int, start: FetchFrom, anew: bool = False) -> None:
        """`anew`: an answer is due even where nothing is new. A broker that knows the partition would keep
        silent about it, also where it is forgotten and wanted again between two fetches.
        """
        key = (topic_id, partition)
        self._anew |= anew and key in self._told
        self._wanted[key] = start
        self._changed.add(key)

    def forget(self, topic_id: bytes, partition: int) -> None:
        key = (topic_id, partition)
        self._wanted.pop(key, None)
        self._changed.add(key)

    def wants(self, topic_id: bytes, partition: int) -> bool:
        return (topic_id, partition) in self._wanted

    async def fetch(self) -> tuple[FetchedPartition, ...]:
        """Partitions with news; empty when the wait passed without any.

        A session that the broker no longer knows is begun anew and answers nothing this time. Raises wire
        errors; after one, the next fetch begins anew too.
        """
        request = self._request()
        within = self.limits.max_wait_ms / 1000 + self._cluster.settings.request_timeout_s
        try:
            response = await self._cluster.call(self.node, request, self._purpose, within)
            if response.by_name and not response.error:
                response = await self._without_other_topics(response, within)
        except BaseException:
            self._begin_anew()
            raise
        if response.error in _LOST_SESSION:
            self._begin_anew()
            return ()
        if response.error:
            self._begin_anew()
            raise BrokerError(response.error, f"fetching from broker {self.node}")
        self._accept(request, response)
        self.answered_ms = time.time_ns() // 1_000_000
        return response.partitions

    async def close(self) -> None:
        """Frees the broker's memory of the session, if it can be told."""
        if self._session_id == _NO_SESSION:
            return
        farewell = FetchRequest(0, 0, 0, self._isolation, self._session_id, NO_SESSION_EPOCH, {})
        self._session_id = _NO_SESSION
        self._begin_anew()
        try:
            told = self._cluster.call(self.node, farewell, self._purpose, _FAREWELL_S)
            await in_time(told, _FAREWELL_S, "a farewell")  # a throttled one would wait for its turn first
        except (ConnectionFailure, BrokerError):
            return

    def _request(self) -> FetchRequest:
        if self._anew:
            self._begin_anew()
        if self._epoch == FULL_SESSION_EPOCH:
            self._told = dict(self._wanted)
            self._changed.clear()
            return self._asked(FULL_SESSION_EPOCH, dict(self._told), ())
        changed, self._changed = self._changed, set()
        news: dict[Key, FetchFrom] = {}
        forgotten: list[Key] = []
        for key in changed:
            start = self._wanted.get(key)
            if start is None:
                if self._told.pop(key, None) is not None:
                    forgotten.append(key)
            elif self._told.get(key) != start:
                news[key] = self._told[key] = start
        return self._asked(self._epoch, news, forgotten)

    def _asked(
        self, epoch: int, partitions: dict[Key, FetchFrom], forgotten: list[Key] | tuple[()]
    ) -> FetchRequest:
        limits = self.limits
        if (
            self._by_name
            or epoch == FULL_SESSION_EPOCH
            or any(not is_from_kafka(key[0]) for key in partitions)
        ):
            self._resolve_topics({key[0] for key in (*self._told, *partitions, *forgotten)})
        return FetchRequest(
            limits.max_wait_ms,
            limits.min_bytes,
            limits.max_bytes,
            self._isolation,
            self._session_id,
            epoch,
            partitions,
            forgotten,
            topics=self._topics if self._by_name or epoch == FULL_SESSION_EPOCH else self._with_first_ids,
        )

    def _resolve_topics(self, ids: Iterable[bytes]) -> None:
        """Resolves the ids of topics to names, and to the ids that the cluster has now."""
        found = {topic_id: self._cluster.topic_by_id(topic_id) for topic_id in ids}
        self._topics = {
            topic_id: FetchedTopic(topic.name, topic.id)
            for topic_id, topic in found.items()
            if topic is not None
        }
        self._with_first_ids = {
            topic_id: topic for topic_id, topic in self._topics.items() if not is_from_kafka(topic_id)
        }

    async def _without_other_topics(self, response: FetchResponse, within: float) -> FetchResponse:
        """Returns the response with UNKNOWN_TOPIC_ID for partitions of topics that were recreated.

        The leader that sent the records is asked for the ids after it: an id never comes back, so one that is
        still there was there all the time.
        """
        fetched = [one for one in response.partitions if len(one.records) and is_from_kafka(one.topic_id)]
        names = {one.topic_id: self._topics[one.topic_id].name for one in fetched}
        if not names:
            return response
        asked = MetadataRequest(sorted(names.values()))
        answer = await self._cluster.call(self.node, asked, self._purpose, within)
        known = {topic.name: topic.id for topic in answer.topics if not topic.error}
        gone = {
            topic_id
            for topic_id, name in names.items()
            if name not in known or is_other_topic(topic_id, known[name])
        }
        return replace(
            response,
            partitions=tuple(
                unknown_topic(one.topic_id, one.partition) if one.topic_id in gone else one
                for one in response.partitions
            ),
        )

    def _accept(self, request: FetchRequest, response: FetchResponse) -> None:
        self._session_id = response.session_id
        self._by_name = response.by_name
        if response.session_id == _NO_SESSION:
            self._epoch = FULL_SESSION_EPOCH
        else:
            self._epoch = 1 if request.session_epoch == _HIGHEST_EPOCH else request.session_epoch + 1
        for partition in response.partitions:
            key = (partition.topic_id, partition.partition)
            if partition.error or partition.diverging is not None:
                # Unless the caller moved it meanwhile, it must not fail again at once.
                if self._wanted.get(key) == self._told.get(key):
                    self.forget(*key)
            elif self._session_id == _NO_SESSION and partition.records and key in self._wanted:
                self._wanted[key] = self._wanted.pop(key)

    def _begin_anew(self) -> None:
        """The next fetch names everything; beside the old session's id, that lets the broker drop it."""
        self._epoch = FULL_SESSION_EPOCH
        self._told = {}
        self._anew = False
