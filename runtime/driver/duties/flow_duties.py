"""Runs the side duties of flows.

The duties are heartbeats, schemas, commits at the origin (R9), source ends, and cleaning of offset maps (R6).

They start with each version of a flow. What fails is noted in the flow's status and retried; it never stops
the flow.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from operator import attrgetter
from typing import NamedTuple

from msgspec.structs import replace

from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.records import job_status
from runtime.contract.records.job_status import EndsKey, FlowView, SlotReport, SourceEnds
from runtime.contract.spec import naming
from runtime.contract.spec.flow import OriginCommitsSpec
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.route import router_of
from runtime.driver.clusters import DriverClusters
from runtime.driver.duties.acl_sync import AclSync, ClusterRulesReader
from runtime.driver.duties.group_sync import CommittedOffsetsReader, GroupSync
from runtime.driver.duties.heartbeats import FlowHeartbeats
from runtime.driver.duties.subject_sync import SubjectsReader, SubjectSync
from runtime.driver.flows.flow import DriverFlow
from runtime.driver.flows.start import FlowContext
from runtime.driver.slots.channel import post
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.offsets import LATEST, ListedOffset, TopicPartition
from runtime.kafka.queries import list_offsets, offset_commit
from runtime.kafka.records import InternalRecord
from runtime.kafka.timing import BackgroundTasks
from runtime.ledger.map_cleaner import clean_map
from runtime.ledger.records import READ_FAILURES
from runtime.metrics.snapshot import GroupSnapshot

_SOURCE_ENDS_EVERY_S = 5.0
_SOURCE_ENDS_PURPOSE = "look"
_FIRST_CLEAN_S = 60.0
_CLEAN_EVERY_S = 300.0
_REFUSED_RETRY_S = 60.0
# Groups of a paused flow are still synced over what was copied; groups of other flows are not.
_SYNCED = ("active", "paused")


async def publish_source_ends(flow: DriverFlow, notes: dict[str, str]) -> None:
    """Reports the end offsets every five seconds.

    A failure is noted in `notes` and retried. Raises DriverFenced.
    """
    while True:
        try:
            await _report_source_ends(flow)
            notes.pop("source", None)
        except (WireError, ClientSettingsError) as error:
            notes["source"] = str(error)
        await asyncio.sleep(_SOURCE_ENDS_EVERY_S)


async def _report_source_ends(flow: DriverFlow) -> None:
    """Reports the last stable offsets of the flow's topics, which slots report as well.

    Raises WireError, DriverFenced.
    """
    shared = flow.shared
    source = await shared.clusters.cluster(flow.spec.source)
    topics_at_source = await shared.clusters.listing(flow.spec.source)
    asked = {
        TopicPartition(topic, partition): LATEST
        for topic in flow.selected(topics_at_source)
        for partition in topics_at_source[topic].partitions
    }
    if not asked:
        return
    at_ms = int(time.time() * 1000)
    listed_offsets = await list_offsets(source, asked, Isolation.READ_COMMITTED)
    topics: dict[str, dict[int, int]] = {}
    for at, answer in listed_offsets.items():
        if isinstance(answer, ListedOffset):
            topics.setdefault(at.topic, {})[at.partition] = answer.offset
    key = job_status.encode_key(EndsKey(shared.job, flow.name))
    value = job_status.encode(SourceEnds(at_ms, topics))
    await shared.leadership.ensure()
    await post(shared.destination, naming.STATUS, [InternalRecord(key, value)], _SOURCE_ENDS_PURPOSE)


async def clean_periodically(flow: FlowSpec, shared: FlowContext, notes: dict[str, str]) -> None:
    """Deletes and merges segments of the offset map: soon after the start, then every few minutes.

    A failure is noted in `notes` and retried the next time. Raises DriverFenced.
    """
    records = shared.records.of(flow.destination, shared.destination)
    wait_s = _FIRST_CLEAN_S
    while True:
        await asyncio.sleep(wait_s)
        wait_s = _CLEAN_EVERY_S
        try:
            await shared.leadership.ensure()
            maps = records.maps_by(shared.ledger).reader
            await clean_map(maps, shared.destination, shared.writer, flow.name)
            notes.pop("offset map", None)
        except (WireError, *READ_FAILURES) as error:
            notes["offset map"] = f"its segments were not merged or trimmed: {error}"


_Positions = dict[TopicPartition, int]


class ReportedPositions:
    """A ReportedPositions object finds the positions of a flow in the newest reports of all slots.

    Each report is grouped by flow once, and only if a position differs from the report before.
    """

    def __init__(self, reports: Callable[[], Iterable[SlotReport]]) -> None:
        self._reports = reports
        self._by_slot: dict[int, _SlotPositions] = {}

    def of(self, flow: str) -> _Positions:
        """Returns the newest reported position of each partition of the flow.

        A partition that moved is also in the last report of its former slot; the newer report counts.
        """
        found: _Positions = {}
        for report in sorted(self._reports(), key=lambda report: report.status.at_ms):
            found |= self._by_flow(report).get(flow, {})
        return found

    def _by_flow(self, report: SlotReport) -> dict[str, _Positions]:
        known = self._by_slot.get(report.status.slot)
        if known is None or known.report is not report:
            places = _places(report)
            same = known is not None and known.places == places
            by_flow = known.by_flow if known is not None and same else _grouped(places)
            known = self._by_slot[report.status.slot] = _SlotPositions(report, places, by_flow)
        return known.by_flow


_Place = tuple[str, str, int, int]  # flow, topic, partition, position
_place_of = attrgetter("flow", "topic", "partition", "position")


class _SlotPositions(NamedTuple):
    """The positions in the newest report of a slot, as the report has them and by flow."""

    report: SlotReport
    places: list[_Place]
    by_flow: dict[str, _Positions]


def _places(report: SlotReport) -> list[_Place]:
    return [one for one in map(_place_of, report.status.partitions) if not naming.is_internal(one[1])]


def _grouped(places: Iterable[_Place]) -> dict[str, _Positions]:
    found: dict[str, _Positions] = {}
    for flow, topic, partition, position in places:
        if position >= 0:
            found.setdefault(flow, {})[TopicPartition(topic, partition)] = position
    return found


class SideDuties:
    """A SideDuties object runs the side duties of one flow.

    What is denied or fails is noted in `notes` and retried; it never stops the flow.
    """

    def __init__(self, flow: FlowSpec, clusters: DriverClusters) -> None:
        self.notes: dict[str, str] = {}
        self._flow = flow
        self._clusters = clusters

    async def origin_commits(self, reported: ReportedPositions) -> None:
        """Commits the copied positions at the source as the flow's own group (R9).

        They are never read back.
        """
        wanted = self._flow.origin_commits
        if wanted is None:
            return
        committed: dict[TopicPartition, int] = {}
        while True:
            await asyncio.sleep(wanted.every_ms / 1000)
            positions = reported.of(self._flow.name)
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


class FlowDuties:
    """A FlowDuties object owns the side duties of all flows.

    `spec` and `reports` are called when they are needed, because both change while the job runs.
    `schema_actions` counts what became of schemas ahead of records, by flow and kind.
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
        self._positions = ReportedPositions(reports)
        self._by_flow: dict[str, tuple[SideDuties, list[asyncio.Task[None]]]] = {}
        self._groups: dict[str, tuple[GroupSync, asyncio.Task[None]]] = {}
        self._acls: dict[str, AclSync] = {}
        self._rules = ClusterRulesReader(clusters)
        self._heartbeats = FlowHeartbeats(spec, clusters, tasks)
        self._readers: dict[str, CommittedOffsetsReader] = {}
        self._subjects = SubjectsReader(clusters)
        self.schema_actions: Counter[tuple[str, str]] = Counter()

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
        duties = SideDuties(flow.spec, self._clusters)
        if flow.spec.state == "paused":
            task = self._tasks.spawn(publish_source_ends(flow, duties.notes), f"source ends {flow.name}")
            self._by_flow[flow.name] = (duties, [task])
        if flow.spec.state != "active":
            return
        spec = self._spec()
        router = router_of(spec)
        acls = AclSync(flow, spec.topology, router.routes[flow.name], spec.routes, self._rules)
        self._acls[flow.name] = acls
        subjects = SubjectSync(flow, router, self._subjects, duties.notes, self.schema_actions)
        tasks = [
            self._tasks.spawn(acls.run(), f"ACLs {flow.name}"),
            self._tasks.spawn(subjects.run(), f"schemas of {flow.name}"),
            self._tasks.spawn(
                clean_periodically(flow.spec, flow.shared, duties.notes),
                f"cleaning the offset map of {flow.name}",
            ),
            self._tasks.spawn(duties.origin_commits(self._positions), f"origin commits {flow.name}"),
        ]
        self._by_flow[flow.name] = (duties, tasks)
        self._heartbeats.add(flow.spec, duties.notes)

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
        if view.flow in self._acls:
            duty_notes |= self._acls[view.flow].notes
        if view.flow in self._groups:
            duty_notes |= self._groups[view.flow][0].notes
        notes = [f"{what}: {why}" for what, why in duty_notes.items()]
        return replace(view, notes=[*view.notes, *notes]) if notes else view

    def _end(self, name: str) -> None:
        self._acls.pop(name, None)
        self._heartbeats.remove(name)
        tasks = self._by_flow.pop(name)[1] if name in self._by_flow else []
        if name in self._groups:
            tasks.append(self._groups.pop(name)[1])
        for task in tasks:
            task.cancel()
