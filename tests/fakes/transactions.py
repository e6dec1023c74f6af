"""Clients of real brokers whose transactions fail: late markers, a lost answer, a request that halts."""

from __future__ import annotations

import asyncio
from typing import Any

from runtime.kafka.cluster import CONTROL, KafkaCluster
from runtime.kafka.connection import Connection
from runtime.kafka.errors import Disconnected, ErrorCode
from runtime.kafka.protocol.transactions import EndTransactionRequest

LATE_S = 0.5


class LateMarkers(KafkaCluster):
    """Answers the end of a transaction long before its markers are written.

    A broker does that, too, but its markers follow within milliseconds.
    """

    _ending: asyncio.Task[Any] | None = None

    async def call(self, node: int, request: Any, *more: Any, **options: Any) -> Any:
        if isinstance(request, EndTransactionRequest) and request.commit:
            self._ending = asyncio.create_task(self._end_later(node, request, *more, **options))
            return ErrorCode.NONE
        if getattr(request, "transactional_id", None) is not None and self._ending is not None:
            await self._ending
        return await super().call(node, request, *more, **options)

    async def _end_later(self, node: int, request: EndTransactionRequest, *more: Any, **options: Any) -> None:
        await asyncio.sleep(LATE_S)
        await super().call(node, request, *more, **options)


class LostAnswer(KafkaCluster):
    """Sends the end of a transaction and loses its answer, as often as `lose` says."""

    lose = 0

    async def call(self, node: int, request: Any, *more: Any, **options: Any) -> Any:
        answer = await super().call(node, request, *more, **options)
        if isinstance(request, EndTransactionRequest) and self.lose:
            self.lose -= 1
            raise Disconnected("test", "the answer was lost", sent=True)
        return answer


class HaltingProduce(KafkaCluster):
    """Halts before the second produce request, for ever."""

    sent = 0

    async def connection(self, node: int, purpose: str = CONTROL, within: float | None = None) -> Any:
        link = await super().connection(node, purpose, within)
        return _HaltingLink(self, link) if purpose == "produce" else link


class _HaltingLink:
    """A connection for produce requests, each of which waits for `ready` before it starts."""

    def __init__(self, cluster: HaltingProduce, link: Connection) -> None:
        self._cluster, self._link = cluster, link
        self.start, self.drop = link.start, link.drop

    async def ready(self) -> None:
        self._cluster.sent += 1
        if self._cluster.sent == 2:
            await asyncio.Event().wait()
        await self._link.ready()
