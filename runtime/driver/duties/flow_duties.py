"""Runs the side duties of flows.

The duties are heartbeats, schemas, commits at the origin (R9), source ends, and cleaning of offset maps (R6).

They start with each version of a flow. What fails is noted in the flow's status and retried; it never stops
the flow.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from functools import partial
from operator import is_not, itemgetter

from msgspec import Struct, field
from msgspec.structs import replace

from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.records import job_status
from runtime.contract.records.job_status import (
    FlowView,
    SlotReport,
    SourceEnds,
    StatusKey,
    changed_partitions,
)
from runtime.contract.spec import naming
from runtime.contract.spec.jobspec import JobSpec
from runtime.contract.spec.naming import TopicPartition
from runtime.contract.spec.route import router_of
from runtime.driver.clusters import DriverClusters
from runtime.driver.duties.acl_sync import AclSync, ClusterRulesReader
from runtime.driver.duties.group_sync import CommittedOffsetsReader, GroupSync
from runtime.driver.duties.heartbeats import FlowHeartbeats
from runtime.driver.duties.subject_sync import SubjectSync
from runtime.driver.flows.flow import DriverFlow, FlowPhase
from runtime.driver.slots.channel import post
from runtime.kafka.errors import WireError
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.offsets import LATEST
from runtime.kafka.queries import known_offsets, offset_commit
from runtime.kafka.records import InternalRecord
from runtime.kafka.timing import BackgroundTasks, now_ms
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
    partitions = [
        TopicPartition(topic, partition)
        for topic in flow.selected(topics_at_source)
        for partition in topics_at_source[topic].partitions
    ]
    if not partitions:
        return
    at_ms = now_ms()
    topics: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for at, end in (await known_offsets(source, partitions, LATEST, Isolation.READ_COMMITTED)).items():
        topics[at.topic][at.partition] = end
    key = job_status.encode_key(StatusKey("ends", shared.job, flow.name))
    value = job_status.encode(SourceEnds(at_ms, topics))
    await shared.leadership.ensure()
    await post(shared.destination, naming.STATUS, [InternalRecord(key, value)], _SOURCE_ENDS_PURPOSE)


async def clean_periodically(flow: DriverFlow, notes: dict[str, str]) -> None:
    """Deletes and merges segments of the offset map: soon after the start, then every few minutes.

    A failure is noted in `notes` and retried the next time. Raises DriverFenced.
    """
    shared = flow.shared
    records = shared.records.of(flow.spec.destination, shared.destination)
    wait_s = _FIRST_CLEAN_S
    while True:
        await asyncio.sleep(wait_s)
        wait_s = _CLEAN_EVERY_S
        try:
            await shared.leadership.ensure()
            maps = records.maps_by(shared.ledger)
            await clean_map(maps, shared.destination, shared.leadership, flow.name)
            notes.pop("offset map", None)
        except (WireError, *READ_FAILURES) as error:
            notes["offset map"] = f"its segments were not merged or trimmed: {error}"


_Positions = dict[TopicPartition, int]


class _SlotPositions(Struct, frozen=True):
    """The positions in a report, by flow, each with the time of the report that changed them last."""

    report: SlotReport
    by_flow: dict[str, tuple[int, _Positions]] = field(default_factory=dict)


class ReportedPositions:
    """Finds the positions of a flow in the newest reports of all slots.

    In a newer report, only flows with a changed partition object are read again. The positions of a
    flow are the same object as long as none of them changes.
    """

    def __init__(self, reports: Callable[[], Iterable[SlotReport]]) -> None:
        self._reports = reports
        self._by_slot: dict[int, _SlotPositions] = {}
        self._by_flow: dict[str, tuple[list[_Positions], _Positions]] = {}

    def of(self, flow: str) -> Mapping[TopicPartition, int]:
        """Returns the newest reported position of each partition of the flow.

        A partition that moved is also in the last report of its former slot; the newer positions count.
        """
        reports = list(self._reports())
        slots = [self._of_slot(report).by_flow for report in reports]
        for slot in self._by_slot.keys() - {report.slot for report in reports}:
            del self._by_slot[slot]
        parts = sorted((by_flow[flow] for by_flow in slots if flow in by_flow), key=itemgetter(0))
        newest = [positions for _, positions in parts]
        before, merged = self._by_flow.get(flow, ([], {}))
        if len(newest) != len(before) or any(map(is_not, newest, before)):
            merged = {at: position for positions in newest for at, position in positions.items()}
            self._by_flow[flow] = newest, merged
        return merged

    def forget(self, flow: str) -> None:
        """Forgets the positions of a flow that the job no longer has."""
        self._by_flow.pop(flow, None)

    def _of_slot(self, report: SlotReport) -> _SlotPositions:
        """Returns the positions of a report; those of a flow are the same object where none has changed."""
        known = self._by_slot.get(report.slot, _SlotPositions(_NO_REPORT))
        if known.report is report:
            return known
        touched = {
            status.flow
            for newer, older in ((report, known.report), (known.report, report))
            for status in changed_partitions(newer, older)
            if not naming.is_internal(status.topic)
        }
        by_flow = {flow: positions for flow, positions in known.by_flow.items() if flow not in touched}
        for flow, positions in _positions_of(report, touched).items():
            before = known.by_flow.get(flow)
            by_flow[flow] = before if before and before[1] == positions else (report.at_ms, positions)
        found = self._by_slot[report.slot] = _SlotPositions(report, by_flow)
        return found


_NO_REPORT = SlotReport(0, 0, 0)


def _positions_of(report: SlotReport, flows: Collection[str]) -> dict[str, _Positions]:
    """Returns the positions of some flows in a report, by flow."""
    by_flow: dict[str, _Positions] = {}
    for status in report.partitions if flows else ():
        if status.flow in flows and status.position >= 0 and not naming.is_internal(status.topic):
            at = TopicPartition(status.topic, status.partition)
            by_flow.setdefault(status.flow, {})[at] = status.position
    return by_flow


async def commit_at_origin(flow: DriverFlow, reported: ReportedPositions, notes: dict[str, str]) -> None:
    """Commits the copied positions at the source as the flow's own group (R9). They are never read back.

    What is denied or fails is noted in `notes` and retried. Raises DriverFenced.
    """
    wanted = flow.spec.origin_commits
    if wanted is None:
        return
    committed: dict[TopicPartition, int] = {}
    done: Mapping[TopicPartition, int] | None = None
    while True:
        await asyncio.sleep(wanted.every_ms / 1000)
        positions = reported.of(flow.name)
        if positions is done:
            continue
        news = {at: position for at, position in positions.items() if committed.get(at) != position}
        if not news:
            done = positions
            continue
        try:
            cluster = await flow.shared.clusters.cluster(flow.spec.source)
            await flow.shared.leadership.ensure()
            errors = await offset_commit(cluster, wanted.group, news)
        except (WireError, ClientSettingsError) as error:
            notes["origin commits"] = str(error)
            await asyncio.sleep(_REFUSED_RETRY_S)
            continue
        refused = next((code for code in errors.values() if code), None)
        if refused is None:
            notes.pop("origin commits", None)
            committed |= news
        else:
            notes["origin commits"] = f"committing as {wanted.group} was refused: {refused.name}"


async def _once_taken(flow: DriverFlow, duty: Callable[[], Coroutine[None, None, None]]) -> None:
    """Runs a duty once the flow is taken over: the ledger may say that it has ended, or is another job's."""
    await flow.is_taken.wait()
    await duty()


class _Duties(Struct):
    """The running duties of one flow, and the notes about what they could not do."""

    notes: dict[str, str] = field(default_factory=dict)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    groups: GroupSync | None = None


class FlowDuties:
    """Owns the side duties of all flows.

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
        self._tasks = tasks
        self._positions = ReportedPositions(reports)
        self._by_flow: dict[str, _Duties] = {}
        self._rules = ClusterRulesReader(clusters)
        self._heartbeats = FlowHeartbeats(spec, clusters, tasks)
        self._readers: dict[str, CommittedOffsetsReader] = {}
        self.schema_actions: Counter[tuple[str, str]] = Counter()

    def restart(self, flow: DriverFlow) -> None:
        """Restarts the duties of a flow whose new version has started; they begin once it is taken over.

        A flow that was released, or that another job has, gets none: its group counts are kept.
        """
        before = self._by_flow.get(flow.name)
        self._end(flow.name)
        duties = self._by_flow[flow.name] = _Duties()
        if not flow.copier.mirrors:
            return
        if flow.phase in (FlowPhase.RELEASED, FlowPhase.SUPERSEDED):
            duties.groups = before.groups if before is not None else None
            return
        job, notes = self._spec(), duties.notes
        work: dict[str, Callable[[], Coroutine[None, None, None]]] = {}
        if flow.spec.state in _SYNCED:
            reader = self._readers.setdefault(flow.spec.source, CommittedOffsetsReader())
            duties.groups = GroupSync(job, flow.spec, flow.shared, reader, notes, flow.draining)
            if before is not None and before.groups is not None:
                duties.groups.inherit(before.groups)
            work["groups"] = duties.groups.run
        if flow.spec.state == "paused":
            work["source ends"] = partial(publish_source_ends, flow, notes)
        if flow.spec.state == "active":
            work["ACLs"] = AclSync(flow, job, self._rules, notes).run
            work["schemas"] = SubjectSync(flow, router_of(job), notes, self.schema_actions).run
            work["cleaning of the offset map"] = partial(clean_periodically, flow, notes)
            work["origin commits"] = partial(commit_at_origin, flow, self._positions, notes)
            self._heartbeats.add(flow.spec, flow.shared.leadership, notes)
        duties.tasks = [
            self._tasks.spawn(_once_taken(flow, duty), f"{name} of {flow.name}")
            for name, duty in work.items()
        ]

    def retain_only(self, flows: Collection[str]) -> None:
        """Ends the duties of all flows except these."""
        for name in self._by_flow.keys() - set(flows):
            self._end(name)
            self._positions.forget(name)

    def groups(self) -> list[GroupSnapshot]:
        """Returns the group metrics of all flows."""
        syncs = [duties.groups for duties in self._by_flow.values() if duties.groups is not None]
        return [snapshot for sync in syncs for snapshot in sync.snapshots()]

    def with_notes(self, views: Iterable[FlowView]) -> list[FlowView]:
        """Returns the flows' status, each with the notes of failed duties."""
        notes_by_flow = {name: duties.notes for name, duties in self._by_flow.items()}
        return [
            replace(view, notes=[*view.notes, *(f"{what}: {why}" for what, why in notes.items())])
            if (notes := notes_by_flow.get(view.flow))
            else view
            for view in views
        ]

    def _end(self, name: str) -> None:
        self._heartbeats.remove(name)
        if name in self._by_flow:
            for task in self._by_flow.pop(name).tasks:
                task.cancel()
