"""This module runs a flow into files: rounds of Spark tasks stage files, and each round is one commit.

The manifest in the endpoint's folder decides where a partition resumes (R1). The ledger at the job's home
cluster gets the progress after each commit, for people to look at; nothing resumes from it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from runtime.contract.groups import own_groups
from runtime.contract.records.control import AssignedPartition, client_id
from runtime.contract.records.job_status import PartitionState, PartitionStatus
from runtime.contract.records.ledger import LedgerKey, LedgerValue, PartitionKey, Progress, ProgressKey
from runtime.contract.records.manifest import Commit, FilePosition, ManifestOwner
from runtime.contract.spec.files import in_own_folder
from runtime.contract.spec.flow import Start
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.naming import is_other_topic
from runtime.contract.spec.route import Router
from runtime.driver.application import TasksFailed
from runtime.driver.duties.checkpoint import CheckpointDuty
from runtime.driver.duties.compaction import CompactionDuty
from runtime.driver.duties.snapshots import SnapshotDuty
from runtime.driver.flows.file_rounds import (
    PlannedRound,
    SourcePartition,
    advanced,
    at_position,
    facts_of,
    plan_round,
    progress_of,
    seen_at,
    tickets_of,
)
from runtime.driver.flows.rounds import ROUND_S, RoundFlow, entered, finished
from runtime.driver.flows.start import FlowContext, selection
from runtime.driver.process import JvmSilent
from runtime.driver.task import run_export
from runtime.files.compaction import MergedFiles
from runtime.files.export import (
    ExportedPartition,
    ExportPartition,
    ExportResult,
    ExportTicket,
    decode_result,
    encode_ticket,
)
from runtime.files.manifest import (
    EndpointUnavailable,
    ManifestFolder,
    ManifestProblem,
    ManifestState,
    owner_problem,
)
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.fetch import Isolation
from runtime.kafka.protocol.offsets import EARLIEST, LATEST, ListedOffset, TopicPartition
from runtime.kafka.queries import list_offsets
from runtime.ledger.positions import resolve_start
from runtime.slot.failpoints import from_environment
from runtime.slot.log import log_event

_LIST_S: Final = 20.0
S = PartitionState
_failpoint = from_environment(os.environ)


class FileFlow(RoundFlow):
    """A FileFlow copies the topics of one flow into files until cancelled."""

    def __init__(self, spec: FlowSpec, job: JobSpec, router: Router, shared: FlowContext) -> None:
        assert spec.files is not None, "a flow into a cluster is a DriverFlow"
        super().__init__(spec, job, router, shared, spec.files.every_ms)
        self.files = spec.files
        self._folder = ManifestFolder(self.files.folder, spec.name, self.files.client)
        self._manifest = ManifestState()
        self._snapshots = SnapshotDuty(spec, self.files, shared.clusters, own_groups(job))
        self._compaction = CompactionDuty(spec.name, self.files, self._folder)
        self._checkpoints = CheckpointDuty(spec.name, self._folder)
        self._claimed = False

    def _is_lost(self, error: Exception) -> bool:
        return isinstance(error, ManifestProblem)

    def _forget(self) -> None:
        self._claimed = False  # the manifest is read again: the commit may have been written
        self._compaction.forget()

    def selected(self, topics: Iterable[str]) -> dict[str, str]:
        """Returns the topics that the flow selects, without those whose folder holds the manifests."""
        found = super().selected(topics)
        return {name: into for name, into in found.items() if not in_own_folder(self.files.layout, name)}

    async def _round(self) -> bool:
        """Copies once, and returns whether there is more to copy at once. Raises what `run` handles."""
        shared = self._shared
        source = await self._source()
        await shared.leadership.ensure()
        await shared.ledger.decided(self.name)
        if self._is_superseded():
            return False
        if not self._claimed:
            await finished(self._claim(source))
        await asyncio.to_thread(self._folder.check, self._manifest)
        await finished(self._snapshots.run(source, self.generation or 0, self.selected))
        found = await self._source_partitions(source)
        await self._begin(source, found)
        found = [one for one in found if self._is_known(one)]
        accepts = self.spec.on_data_loss == "skip"
        planned = plan_round(
            found,
            self._manifest.positions,
            lambda key: accepts or PartitionKey(self.name, *key) in self.accepted,
            int(time.time() * 1000),
        )
        self._note(found, planned)
        self._started()
        if planned.moved:
            await finished(self._commit(found, planned.moved, ()))
            self.clear_accepted_loss(PartitionKey(self.name, *one.key) for one in planned.moved)
        behind = await self._copy(found, planned.copy) if planned.copy else False
        behind = await self._compact() or behind
        if self._checkpoints.is_due(self._manifest):
            await finished(self._checkpoint())
        return behind

    async def _copy(self, found: Sequence[SourcePartition], copy: Sequence[ExportPartition]) -> bool:
        """Copies partitions to files and commits them. Returns whether there is more to copy at once."""
        results = await self._export(copy)
        await finished(self._take_results(found, results))
        done = {(one.topic, one.partition): one for result in results for one in result.partitions}
        return any(
            not done[one.topic, one.partition].stopped and done[one.topic, one.partition].position < one.end
            for one in copy
        )

    async def _compact(self) -> bool:
        """Merges small files where that is due. Returns whether there is more to merge at once."""
        duty = self._compaction
        if not duty.is_due:
            return False
        assert self.generation is not None
        merged = await duty.stage(self.generation, await self._tasks(), self._run_tasks)
        if merged:
            await finished(self._replace(merged))
        return bool(merged) and duty.has_more

    async def _replace(self, merged: Sequence[MergedFiles]) -> None:
        await self._shared.leadership.ensure()
        await self._compaction.commit(self._manifest, self._next_commit(), merged)
        replaced = sum(len(one.replaced) for one in merged if one.file is not None)
        self._stats = replace(self._stats, merged_files=self._stats.merged_files + replaced)

    async def _checkpoint(self) -> None:
        """Writes a checkpoint of the manifest."""
        await self._shared.leadership.ensure()
        await self._checkpoints.run(self._manifest, self._next_commit())

    async def _claim(self, source: KafkaCluster) -> None:
        """Reads the manifest, finishes its last commit, and claims it for this generation (R3)."""
        assert self.generation is not None
        state = await asyncio.to_thread(self._folder.read)
        await asyncio.to_thread(self._folder.check_exclusive)
        owner = ManifestOwner(topology=self._job.topology, job=self._job.job, cluster_id=source.cluster_id)
        if problem := owner_problem(state, owner, self.files.folder):
            raise ManifestProblem(problem)
        last = state.last
        if last is None and self._shared.ledger.all_progress(self.name):
            raise ManifestProblem(
                f"the manifest of {self.name} is gone from {self.files.folder}, where it has copied records:"
                " mount or restore the folder, or give the flow another name to copy everything anew"
            )
        if last is not None and last.generation > self.generation:
            raise ManifestProblem(
                f"{self.files.folder} was claimed by generation {last.generation}, and this is generation"
                f" {self.generation}: another driver has the flow, or its ledger was lost"
            )
        if last is not None and last.format != self.files.format:
            raise ManifestProblem(
                f"{self.files.folder} holds {last.format} files of this flow, and the topology says"
                f" {self.files.format}: give the flow another name, or another folder"
            )
        if last is not None:
            await asyncio.to_thread(self._folder.publish, last.files)
            await asyncio.to_thread(self._folder.hide, last.replaced)
        if last is None or last.generation != self.generation:
            claim = Commit(
                number=last.number + 1 if last is not None else 1,
                flow=self.name,
                owner=owner,
                generation=self.generation,
                at_ms=int(time.time() * 1000),
                format=self.files.format,
                complete=True,
                selection=last.selection if last is not None else "",
            )
            await asyncio.to_thread(self._folder.add, state, claim)
            log_event(
                "manifest_claimed",
                key=self.name,
                flow=self.name,
                folder=self.files.folder,
                commit=claim.number,
                generation=self.generation,
            )
        await asyncio.to_thread(self._folder.clear_staging)
        self._manifest, self._claimed = state, True

    async def _source_partitions(self, source: KafkaCluster) -> list[SourcePartition]:
        """Returns the partitions that the flow selects now, with their bounds. Raises WireError."""
        self._shared.clusters.invalidate(self.spec.source)
        listing = await self._shared.clusters.listing(self.spec.source)
        topics = {name: one for name, one in listing.items() if one.error is ErrorCode.NONE}
        selected = self.selected(topics)
        wanted = [TopicPartition(name, number) for name in selected for number in topics[name].partitions]
        starts, ends = await asyncio.gather(
            _offsets(source, wanted, EARLIEST, Isolation.READ_UNCOMMITTED),
            _offsets(source, wanted, LATEST, Isolation.READ_COMMITTED),
        )
        gone = sorted({key[0] for key in self._manifest.positions if key[0] not in topics})
        notes = [f"{name} is gone from {self.spec.source}: its files stay" for name in gone]
        notes += [
            f"{name} is not copied: its folder would be that of the manifests"
            for name in sorted(super().selected(topics).keys() - selected.keys())
        ]
        self._notes = tuple(
            filter(None, [self._snapshots.note, self._compaction.note, self._checkpoints.note, *notes])
        )
        self._publish(wanted)
        return [
            SourcePartition(at.topic, topics[at.topic].id, at.partition, starts.get(at, -1), ends.get(at, -1))
            for at in sorted(wanted)
        ]

    def _publish(self, wanted: Iterable[TopicPartition]) -> None:
        """Publishes the partitions of the flow, as its view and the metrics count them."""
        keys = [PartitionKey(self.name, *at) for at in wanted]
        self.partitions = {key: AssignedPartition(*key, destination_topic=key.topic) for key in keys}

    async def _begin(self, source: KafkaCluster, found: Sequence[SourcePartition]) -> None:
        """Commits the first positions of new partitions and of new lineages before any is copied (R1).

        `start` applies to topics without a position when the selection begins. Partitions and topics that
        appear later, and a topic that was made again, start at their first record.
        """
        assert self._manifest.last is not None
        known = self._manifest.positions
        answering = [one for one in found if one.start >= 0]
        other = [one for one in answering if one.key in known and not self._is_known(one)]
        again = [one for one in other if is_other_topic(bytes.fromhex(known[one.key].topic_id), one.topic_id)]
        named = [one for one in other if one not in again]  # its cluster had no ids before an upgrade
        new = [one for one in answering if one.key not in known]
        begins = self._manifest.last.selection != selection(self.spec)
        if not (other or new or begins):
            return
        topics = {topic for topic, _ in known}
        by_start = [one for one in new if begins and one.topic not in topics]
        at = await self._resolved(source, by_start, self.spec.start)
        first = [
            FilePosition(
                topic=one.topic,
                topic_id=one.topic_id.hex(),
                partition=one.partition,
                position=at.get(one.key, one.start),
            )
            for one in (*new, *again)
        ]
        first += [replace(known[one.key], topic_id=one.topic_id.hex()) for one in named]
        for one in again:
            log_event(
                "topic_recreated",
                key=f"{self.name} {one.topic}-{one.partition}",
                flow=self.name,
                topic=one.topic,
                partition=one.partition,
                position=known[one.key].position,
                decision="begin another lineage",
            )
        await finished(self._commit(found, first, ()))

    def _is_known(self, one: SourcePartition) -> bool:
        """Returns whether the manifest has a position for this very topic."""
        position = self._manifest.positions.get(one.key)
        return position is not None and position.topic_id == one.topic_id.hex()

    async def _resolved(
        self, source: KafkaCluster, partitions: Sequence[SourcePartition], start: Start
    ) -> dict[tuple[str, int], int]:
        """Returns where partitions start. Raises WireError."""
        if not partitions:
            return {}
        wanted = [TopicPartition(one.topic, one.partition) for one in partitions]
        return {
            (at.topic, at.partition): to for at, to in (await resolve_start(source, wanted, start)).items()
        }

    async def _export(self, copy: Sequence[ExportPartition]) -> list[ExportResult]:
        """Runs a round's tasks. Raises TasksFailed, EndpointUnavailable."""
        assert self.generation is not None
        tasks = await self._tasks()
        rate = self.spec.rate_limit
        generation = self.generation

        def ticket(partitions: list[ExportPartition]) -> ExportTicket:
            return ExportTicket(
                flow=self.name,
                generation=generation,
                source=self.spec.source,
                cluster=self._job.clusters[self.spec.source],
                client_id=client_id(self._job.job, 0),
                files=self.files,
                partitions=partitions,
                round_s=ROUND_S,
                rate=max(rate // min(tasks, len(copy)), 1) if rate is not None else None,
                transform=self.spec.transform,
            )

        tickets = [encode_ticket(one) for one in tickets_of(copy, tasks, ticket)]
        results = [decode_result(text) for text in await self._run_export(tickets)]
        if failed := next((one.error for one in results if one.error), ""):
            raise EndpointUnavailable(failed)
        self._worker = results[0].host, results[0].process
        return results

    async def _run_export(self, tickets: Sequence[bytes]) -> list[bytes]:
        transform, form = self.spec.transform, self.files.format
        if transform is None:
            return await self._run_tasks(run_export, tickets)
        assert form != "raw", "raw files hold batches as they are"
        return await self._ended(self._application.submit_sql_export(self.group, transform, form, tickets))

    async def _tasks(self) -> int:
        """Returns how many tasks a round has at most. Raises TasksFailed."""
        try:
            return self._job.slots or await self._application.cores()
        except JvmSilent as error:
            raise TasksFailed(str(error)) from error

    async def _take_results(self, found: Sequence[SourcePartition], results: Iterable[ExportResult]) -> None:
        """Commits what a round has staged, and notes the states of its partitions."""
        done = [one for result in results for one in result.partitions]
        files = [file for one in done for file in one.files]
        await asyncio.to_thread(self._folder.check_staged, files)
        moved = [
            advanced(self._manifest.positions[one.topic, one.partition], one)
            for one in done
            if one.position > self._manifest.positions[one.topic, one.partition].position
        ]
        if moved:
            await self._commit(found, moved, done)
        for one in done:
            key = PartitionKey(self.name, one.topic, one.partition)
            match one.stopped:
                case "corrupt" | "invalid":
                    state = S.RECORD_CORRUPT if one.stopped == "corrupt" else S.RECORD_INVALID
                    self._states[key] = entered(self._states[key], state, one.why)
                case "failed" | "expired":
                    self._states[key] = entered(self._states[key], S.RETRYING, one.why)
                case _:
                    at_end = one.position >= self._states[key].source_end
                    self._states[key] = entered(self._states[key], S.CAUGHT_UP if at_end else S.COPYING, "")

    async def _commit(
        self,
        found: Sequence[SourcePartition],
        moved: Sequence[FilePosition],
        done: Sequence[ExportedPartition],
    ) -> None:
        """Adds a commit, moves its files into place, and writes the progress to the ledger.

        Raises ManifestTaken, ManifestProblem, EndpointUnavailable, WireError.
        """
        shared = self._shared
        await shared.leadership.ensure()
        files = [file for one in done for file in one.files]
        commit = replace(self._next_commit(), positions=list(moved), files=files)
        _failpoint("before_end")
        await asyncio.to_thread(self._folder.add, self._manifest, commit)
        _failpoint("after_end")
        await asyncio.to_thread(self._folder.publish, files)
        self._compaction.apply(commit)
        self._count(done)
        _failpoint("before_ledger")
        await shared.writer.commit(self._ledger_records(found))
        for one in moved:
            self._set_position(one, commit.at_ms)

    def _next_commit(self) -> Commit:
        """Returns the commit behind the last one, without positions and files."""
        last = self._manifest.last
        assert last is not None
        assert self.generation is not None
        return Commit(
            number=last.number + 1,
            flow=self.name,
            owner=last.owner,
            generation=self.generation,
            at_ms=int(time.time() * 1000),
            format=self.files.format,
            selection=selection(self.spec),
        )

    def _count(self, done: Sequence[ExportedPartition]) -> None:
        self._stats = replace(
            self._stats,
            records=self._stats.records + sum(one.records for one in done),
            bytes=self._stats.bytes + sum(one.bytes for one in done),
            dropped=self._stats.dropped + sum(one.filtered for one in done),
            tombstones=self._stats.tombstones + sum(one.tombstones for one in done),
            commits=self._stats.commits + 1,
        )

    def _ledger_records(self, found: Sequence[SourcePartition]) -> dict[LedgerKey, LedgerValue | None]:
        """Returns the progress of all partitions of which the ledger's is another."""
        assert self.generation is not None
        records: dict[LedgerKey, LedgerValue | None] = {}
        now_ms = int(time.time() * 1000)
        for one in found:
            position = self._manifest.positions.get(one.key)
            key = PartitionKey(self.name, *one.key)
            if position is None:
                continue
            before = self._shared.ledger.progress(key)
            after = progress_of(one, position, self.generation, now_ms)
            if not isinstance(before, Progress) or facts_of(before) != facts_of(after):
                records[ProgressKey(key)] = after
        return records

    def _note(self, found: Iterable[SourcePartition], planned: PlannedRound) -> None:
        """Notes the states of all partitions at the start of a round."""
        now_ms = int(time.time() * 1000)
        states: dict[PartitionKey, PartitionStatus] = {}
        for one in found:
            key = PartitionKey(self.name, *one.key)
            position = self._manifest.positions[one.key]
            before = self._states.get(key) or PartitionStatus(*key, S.STARTING, now_ms)
            state, why = planned.states[one.key]
            if (
                state is S.COPYING
                and before.state in (S.RECORD_CORRUPT, S.RECORD_INVALID, S.RETRYING)
                and before.position == position.position
            ):
                state, why = before.state, before.why  # it is tried again, and nothing has changed so far
            status = seen_at(one, entered(before, state, why), now_ms)
            states[key] = at_position(status, position)
        self._states = states

    def _set_position(self, position: FilePosition, at_ms: int) -> None:
        key = PartitionKey(self.name, *position.key)
        if key in self._states:
            before = self._states[key]
            moved = replace(before, last_commit_ms=at_ms, transactions=before.transactions + 1)
            self._states[key] = at_position(moved, position)


async def _offsets(
    cluster: KafkaCluster, wanted: Sequence[TopicPartition], at: int, isolation: Isolation
) -> dict[TopicPartition, int]:
    """Returns the offsets of the partitions whose leaders answer: the others are retried (R7)."""
    if not wanted:
        return {}
    found = await list_offsets(cluster, dict.fromkeys(wanted, at), isolation, _LIST_S)
    return {key: one.offset for key, one in found.items() if isinstance(one, ListedOffset)}
