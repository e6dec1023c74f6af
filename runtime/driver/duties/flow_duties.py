"""This module starts the side duties of each flow, and restarts them with each version of the flow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from msgspec.structs import replace

from runtime.contract.records.job_status import FlowView, SlotReport
from runtime.contract.spec.jobspec import JobSpec
from runtime.driver.clusters import DriverClusters
from runtime.driver.duties.committed_offsets import CommittedOffsetsReader
from runtime.driver.duties.group_sync import GroupSync
from runtime.driver.duties.side_duties import SideDuties
from runtime.driver.flows.flow import DriverFlow
from runtime.driver.tasks import BackgroundTasks
from runtime.driver.topics.source_ends import publish_source_ends
from runtime.driver.topics.trimming import trim_periodically
from runtime.metrics.snapshot import GroupSnapshot

# Groups of a paused flow are still synced over what was copied; groups of other flows are not.
_SYNCED = ("active", "paused")


class FlowDuties:
    """A FlowDuties object owns the side duties of all flows.

    `spec` and `reports` are called when they are needed, because both change while the job runs.
    """

    def __init__(
        self,
        spec: Callable[[], JobSpec],
        clusters: DriverClusters,
        tasks: BackgroundTasks,
        reports: Callable[[], Iterable[SlotReport]],
    ) -> None:
        self._spec = spec
        self._clusters = clusters
        self._tasks = tasks
        self._reports = reports
        self._by_flow: dict[str, tuple[SideDuties, list[asyncio.Task[None]]]] = {}
        self._groups: dict[str, tuple[GroupSync, asyncio.Task[None]]] = {}
        self._readers: dict[str, CommittedOffsetsReader] = {}

    def restart(self, flow: DriverFlow) -> None:
        """Restarts the duties of a flow whose new version has started."""
        before = self._groups.get(flow.name)
        self._end(flow.name)
        if flow.spec.state in _SYNCED:
            reader = self._readers.setdefault(flow.spec.source, CommittedOffsetsReader())
            sync = GroupSync(self._spec(), flow.spec, flow.shared, reader, flow.draining)
            if before is not None:
                sync.inherit(before[0])
            self._groups[flow.name] = (sync, self._tasks.spawn(sync.run(), f"groups {flow.name}"))
        duties = SideDuties(self._spec(), flow.spec, self._clusters)
        if flow.spec.state == "paused":
            task = self._tasks.spawn(publish_source_ends(flow, duties.notes), f"source ends {flow.name}")
            self._by_flow[flow.name] = (duties, [task])
        if flow.spec.state != "active":
            return
        tasks = [
            self._tasks.spawn(
                trim_periodically(flow.name, flow.shared, duties.notes), f"trimming {flow.name}"
            ),
            self._tasks.spawn(duties.heartbeats(), f"heartbeats {flow.name}"),
            self._tasks.spawn(duties.origin_commits(self._reports), f"origin commits {flow.name}"),
        ]
        self._by_flow[flow.name] = (duties, tasks)

    def retain_only(self, flows: Collection[str]) -> None:
        """Ends the duties of all flows except these."""
        for name in (self._by_flow.keys() | self._groups.keys()) - set(flows):
            self._end(name)

    def groups(self) -> list[GroupSnapshot]:
        """Returns the group metrics of all flows."""
        return [picture for sync, _ in self._groups.values() for picture in sync.snapshots()]

    def with_notes(self, views: Iterable[FlowView]) -> list[FlowView]:
        """Returns the flows' status, each with the notes of failed duties."""
        return [self._with_notes(view) for view in views]

    def _with_notes(self, view: FlowView) -> FlowView:
        duty_notes: dict[str, str] = {}
        if view.flow in self._by_flow:
            duty_notes |= self._by_flow[view.flow][0].notes
        if view.flow in self._groups:
            duty_notes |= self._groups[view.flow][0].notes
        notes = [f"{what}: {why}" for what, why in duty_notes.items()]
        return replace(view, notes=[*view.notes, *notes]) if notes else view

    def _end(self, name: str) -> None:
        tasks = self._by_flow.pop(name)[1] if name in self._by_flow else []
        if name in self._groups:
            tasks.append(self._groups.pop(name)[1])
        for task in tasks:
            task.cancel()
