"""The small duties of each flow, begun anew with each version of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from msgspec.structs import replace

from runtime.contract.records.job_status import FlowView, SlotReport
from runtime.contract.spec.jobspec import JobSpec
from runtime.driver.clusters import Clusters
from runtime.driver.duties.group_sync import GroupSync
from runtime.driver.duties.groups_reader import Reader
from runtime.driver.duties.side_duties import SideDuties
from runtime.driver.flows.flow import FlowWork
from runtime.driver.tasks import Tasks
from runtime.driver.topics.source_ends import keep_told
from runtime.driver.topics.trimming import keep_trimmed
from runtime.metrics.picture import GroupPicture

# A paused flow's groups still move over what was copied; of others nothing is to be done.
_SYNCED = ("active", "paused")


class FlowDuties:
    """`spec` and `reports` are asked for when they are needed: both change while the job runs."""

    def __init__(
        self,
        spec: Callable[[], JobSpec],
        clusters: Clusters,
        tasks: Tasks,
        reports: Callable[[], Iterable[SlotReport]],
    ) -> None:
        self._spec = spec
        self._clusters = clusters
        self._tasks = tasks
        self._reports = reports
        self._by_flow: dict[str, tuple[SideDuties, list[asyncio.Task[None]]]] = {}
        self._groups: dict[str, tuple[GroupSync, asyncio.Task[None]]] = {}
        self._readers: dict[str, Reader] = {}

    def began(self, flow: FlowWork) -> None:
        before = self._groups.get(flow.name)
        self._end(flow.name)
        if flow.spec.state in _SYNCED:
            reader = self._readers.setdefault(flow.spec.source, Reader())
            sync = GroupSync(self._spec(), flow.spec, flow.shared, reader, flow.draining)
            if before is not None:
                sync.inherit(before[0])
            self._groups[flow.name] = (sync, self._tasks.spawn(sync.run(), f"groups {flow.name}"))
        duties = SideDuties(self._spec(), flow.spec, self._clusters)
        if flow.spec.state == "paused":
            told = self._tasks.spawn(keep_told(flow, duties.notes), f"source ends {flow.name}")
            self._by_flow[flow.name] = (duties, [told])
        if flow.spec.state != "active":
            return
        tasks = [
            self._tasks.spawn(keep_trimmed(flow.name, flow.shared, duties.notes), f"trimming {flow.name}"),
            self._tasks.spawn(duties.heartbeats(), f"heartbeats {flow.name}"),
            self._tasks.spawn(duties.origin_commits(self._reports), f"origin commits {flow.name}"),
        ]
        self._by_flow[flow.name] = (duties, tasks)

    def keep(self, flows: Collection[str]) -> None:
        """Of others nothing is to be done any more."""
        for name in (self._by_flow.keys() | self._groups.keys()) - set(flows):
            self._end(name)

    def groups(self) -> list[GroupPicture]:
        """Of all flows: for metrics."""
        return [picture for sync, _ in self._groups.values() for picture in sync.pictures()]

    def noted(self, views: Iterable[FlowView]) -> list[FlowView]:
        """Each flow with what its duties could not do."""
        return [self._noted(view) for view in views]

    def _noted(self, view: FlowView) -> FlowView:
        told: dict[str, str] = {}
        if view.flow in self._by_flow:
            told |= self._by_flow[view.flow][0].notes
        if view.flow in self._groups:
            told |= self._groups[view.flow][0].notes
        notes = [f"{what}: {why}" for what, why in told.items()]
        return replace(view, notes=[*view.notes, *notes]) if notes else view

    def _end(self, name: str) -> None:
        tasks = self._by_flow.pop(name)[1] if name in self._by_flow else []
        if name in self._groups:
            tasks.append(self._groups.pop(name)[1])
        for task in tasks:
            task.cancel()
