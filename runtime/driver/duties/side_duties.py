"""This module runs side duties at a flow's source: heartbeats through the flow, and commits for Kafka's
lag tools.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from runtime.contract.client.values import ClientSettingsError
from runtime.contract.records import heartbeat
from runtime.contract.records.heartbeat import Heartbeat
from runtime.contract.records.job_status import SlotReport
from runtime.contract.spec import internal_topics, naming
from runtime.contract.spec.jobspec import FlowSpec, JobSpec, OriginCommitsSpec
from runtime.driver.clusters import DriverClusters
from runtime.driver.destination import ensure
from runtime.driver.slots.channel import post
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.offsets import TopicPartition
from runtime.kafka.queries.partitions import offset_commit
from runtime.ledger.records import InternalRecord

_RETRY_S = 5.0
_REFUSED_RETRY_S = 60.0


class SideDuties:
    """A SideDuties object runs the side duties of one flow.

    What is denied or fails is noted in `notes` and retried; it never stops the flow.
    """

    def __init__(self, spec: JobSpec, flow: FlowSpec, clusters: DriverClusters) -> None:
        self.notes: dict[str, str] = {}
        self._spec = spec
        self._flow = flow
        self._clusters = clusters

    async def heartbeats(self) -> None:
        """Writes heartbeats at the declared interval, and creates their topic at the source if it is
        missing.
        """
        every = self._flow.heartbeats_every_ms
        if every is None:
            return
        ready = False
        while True:
            try:
                if not ready:
                    await ensure(self._clusters, self._flow.source, internal_topics.at_source(), self._spec)
                    ready = True
                await self._send_heartbeat()
                self.notes.pop("heartbeats", None)
            except (WireError, ClientSettingsError) as error:
                self.notes["heartbeats"] = str(error)
                ready = False
                await asyncio.sleep(_RETRY_S)
            await asyncio.sleep(every / 1000)

    async def _send_heartbeat(self) -> None:
        cluster = await self._clusters.cluster(self._flow.source)
        name = self._flow.name
        beat = Heartbeat(name, self._spec.job, cluster.cluster_id, int(time.time() * 1000))
        record = InternalRecord(heartbeat.encode_key(name), heartbeat.encode(beat))
        await post(cluster, naming.HEARTBEATS, [record], purpose="heartbeat")

    async def origin_commits(self, reports: Callable[[], Iterable[SlotReport]]) -> None:
        """Commits the copied positions at the source as the flow's own group; they are never read back
        (R9).
        """
        wanted = self._flow.origin_commits
        if wanted is None:
            return
        committed: dict[TopicPartition, int] = {}
        while True:
            await asyncio.sleep(wanted.every_ms / 1000)
            positions = positions_of(self._flow.name, reports())
            news = {at: position for at, position in positions.items() if committed.get(at) != position}
            try:
                if news and await self._commit(wanted, news):
                    committed |= news
            except (WireError, ClientSettingsError) as error:
                self.notes["origin commits"] = str(error)
                await asyncio.sleep(_REFUSED_RETRY_S)

    async def _commit(self, wanted: OriginCommitsSpec, news: dict[TopicPartition, int]) -> bool:
        cluster = await self._clusters.cluster(self._flow.source)
        errors = await offset_commit(cluster, wanted.group, news)
        refused = next((code for code in errors.values() if code), None)
        if refused is None:
            self.notes.pop("origin commits", None)
            return True
        self.notes["origin commits"] = f"committing as {wanted.group} was refused: {refused.name}"
        return False


def positions_of(flow: str, reports: Iterable[SlotReport]) -> dict[TopicPartition, int]:
    """Returns the newest reported position of each partition of the flow.

    A partition that moved is also in the last report of its former slot; the newer report counts.
    """
    return {
        TopicPartition(one.topic, one.partition): one.position
        for report in sorted(reports, key=lambda report: report.status.at_ms)
        for one in report.status.partitions
        if one.flow == flow and one.position >= 0 and not naming.is_internal(one.topic)
    }
