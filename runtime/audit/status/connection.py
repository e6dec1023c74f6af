"""Keeps a cluster open for repeated inspections, and opens it again after a failure."""

from __future__ import annotations

import asyncio

from runtime.audit.ledger import OPEN_WITHIN_S, AuditFailure, ClusterAccess, connect, unanswered
from runtime.kafka.cluster import KafkaCluster

_RETRY_WITHIN_S = 0.5


class ReconnectingCluster:
    """Holds the connection to a cluster.

    Call `cluster` for each use, `drop` after a failure, and `close` at the end.
    """

    def __init__(self, reach: ClusterAccess) -> None:
        self.reach = reach
        self._cluster: KafkaCluster | None = None
        self._opening: asyncio.Task[KafkaCluster] | None = None
        self._why = ""

    async def cluster(self, within: float) -> KafkaCluster:
        """Returns the open cluster. Raises AuditFailure.

        An attempt that takes longer continues in the background, for the next call.
        """
        if self._cluster is not None:
            return self._cluster
        if self._opening is None:
            self._opening = asyncio.ensure_future(connect(self.reach, OPEN_WITHIN_S))
        # A cluster that did not answer before gets a short timeout, so that it does not delay the others.
        done, _ = await asyncio.wait([self._opening], timeout=_RETRY_WITHIN_S if self._why else within)
        if not done:
            self._why = self._why or f"no answer within {within:g} s"
            raise AuditFailure(self.reach.name, self._why, unanswered(self.reach.name))
        opening, self._opening = self._opening, None
        try:
            self._cluster = opening.result()
        except AuditFailure as failure:
            self._why = failure.why
            raise
        self._why = ""
        return self._cluster

    async def drop(self) -> None:
        """Closes the cluster; the next call of `cluster` opens it again."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            await cluster.close()

    async def close(self) -> None:
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
            await asyncio.wait([opening])
            if not opening.cancelled() and opening.exception() is None:
                await opening.result().close()
        await self.drop()
