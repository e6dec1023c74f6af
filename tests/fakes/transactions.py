"""Clients of real brokers whose transactions fail: late markers, a lost answer."""

from __future__ import annotations

import asyncio
from typing import Any

from runtime.kafka.cluster import KafkaCluster
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
