"""Writes the heartbeats of a job's flows to their sources.

Each flow copies the whole topic of heartbeats. So the flows of one source with the same interval are written
together, in one batch: if each flow wrote its own, each write would start a transaction in every other flow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.records import heartbeat
from runtime.contract.records.heartbeat import Heartbeat
from runtime.contract.spec import naming, topic_settings
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.driver.clusters import DriverClusters, ensure
from runtime.driver.leadership import Leadership
from runtime.driver.slots.channel import post
from runtime.kafka.errors import WireError
from runtime.kafka.records import InternalRecord
from runtime.kafka.timing import BackgroundTasks, now_ms, until_next

NOTE = "heartbeats"
# Each heartbeat is a transaction of its flow at the destination. So many flows write theirs less often.
MAX_PER_S = 20
_RETRY_S = 5.0
_GroupKey = tuple[str, int]


class FlowHeartbeats:
    """Writes the heartbeats of all flows of a job.

    What is denied or fails is noted in the notes of each flow concerned, and retried.
    """

    def __init__(self, spec: Callable[[], JobSpec], clusters: DriverClusters, tasks: BackgroundTasks) -> None:
        self._spec = spec
        self._clusters = clusters
        self._tasks = tasks
        # The flows of a source with the same interval are one group: the notes of each, and a task for all.
        self._notes: dict[_GroupKey, dict[str, dict[str, str]]] = {}
        self._writing: dict[_GroupKey, asyncio.Task[None]] = {}

    def add(self, flow: FlowSpec, leadership: Leadership, notes: dict[str, str]) -> None:
        """Writes the flow's heartbeats from now on, at its declared interval."""
        if flow.heartbeats_every_ms is None:
            return
        key = flow.source, flow.heartbeats_every_ms
        self._notes.setdefault(key, {})[flow.name] = notes
        if key not in self._writing:
            name = f"heartbeats {flow.source} {flow.heartbeats_every_ms}"
            self._writing[key] = self._tasks.spawn(self._write_periodically(*key, leadership), name)

    def remove(self, flow: str) -> None:
        """Writes no more heartbeats of the flow."""
        for key, notes in list(self._notes.items()):
            if notes.pop(flow, None) is not None and not notes:
                self._writing.pop(key).cancel()
                del self._notes[key]

    async def _write_periodically(self, source: str, every_ms: int, leadership: Leadership) -> None:
        """Writes the heartbeats of a group until cancelled. Creates their topic if it is missing.

        Raises DriverFenced.
        """
        ready, notes = False, self._notes[source, every_ms]
        while True:
            try:
                if not ready:
                    await ensure(self._clusters, source, topic_settings.at_source(), self._spec())
                    ready = True
                await self._write(source, list(notes), leadership)
                for flow_notes in notes.values():
                    flow_notes.pop(NOTE, None)
            except (WireError, ClientSettingsError) as error:
                for flow_notes in notes.values():
                    flow_notes[NOTE] = str(error)
                ready = False
                await asyncio.sleep(_RETRY_S)
            await asyncio.sleep(until_next(interval_s(every_ms, len(notes))))

    async def _write(self, source: str, flows: list[str], leadership: Leadership) -> None:
        """Writes one heartbeat of each flow, all with the same time. Raises WireError, DriverFenced."""
        cluster = await self._clusters.cluster(source)
        await leadership.ensure()  # it may take seconds, which are no delay of the source
        job, at_ms = self._spec().job, now_ms()
        records = [
            InternalRecord(
                heartbeat.encode_key(flow), heartbeat.encode(Heartbeat(flow, job, cluster.cluster_id, at_ms))
            )
            for flow in flows
        ]
        await post(cluster, naming.HEARTBEATS, records, purpose="heartbeat")


def interval_s(every_ms: int, flows: int) -> float:
    """Returns the seconds between two heartbeats of a flow: as declared, or longer with many flows."""
    return max(every_ms / 1000, flows / MAX_PER_S)
