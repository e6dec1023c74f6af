"""This module writes a flow into files: rounds of Spark tasks stage files, and each round is one commit.

The manifest in the endpoint's folder decides where a partition resumes (R1). The ledger at the job's home
cluster gets the progress after each commit, for people to look at; nothing resumes from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from runtime.contract.groups import own_groups
from runtime.contract.records.advance import first_progress
from runtime.contract.records.control import client_id
from runtime.contract.records.job_status import FlowStats, PartitionStatus
from runtime.contract.records.ledger import Gap, LedgerKey, LedgerValue, PartitionKey, Progress, ProgressKey
from runtime.contract.records.manifest import Commit, DataFile, FilePosition, ManifestOwner
from runtime.contract.spec.files import FilesSpec
from runtime.driver.duties.checkpoint import CheckpointDuty
from runtime.driver.duties.compaction import CompactionDuty
from runtime.driver.duties.schema_backup import SchemaBackup
from runtime.driver.duties.snapshots import SnapshotDuty
from runtime.driver.flows.flow import DriverFlow
from runtime.driver.flows.rounds import ROUND_S, Copied, RecordSink, RoundTasks, finished
from runtime.driver.flows.start import selection
from runtime.driver.task import run_export
from runtime.files.compaction import MergedFiles
from runtime.files.export import EXPORT, ExportPartition, ExportTicket
from runtime.files.manifest import (
    COMMIT_FILES,
    EndpointUnavailable,
    ManifestFolder,
    ManifestProblem,
    ManifestState,
    owner_problem,
)
from runtime.files.tasks import encode
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.timing import now_ms
from runtime.slot.failpoints import failpoint
from runtime.slot.log import log_event

Positions = Mapping[PartitionKey, FilePosition]


class FilesSink(RecordSink[FilePosition]):
    """Writes the files and the manifest of one flow."""

    def __init__(self, flow: DriverFlow, files: FilesSpec) -> None:
        self.stats = FlowStats(flow.name)
        self._flow = flow
        self._files = files
        self._folder = ManifestFolder(files.folder, flow.name, files.client)
        self._manifest = ManifestState()
        self._claimed = False
        self._snapshots = SnapshotDuty(flow.spec, files, flow.shared.clusters, own_groups(flow.job))
        self._schemas = SchemaBackup(flow.spec, files, flow.shared.clusters, flow.shared.leadership.ensure)
        self._compaction = CompactionDuty(flow.name, files, self._folder)
        self._checkpoints = CheckpointDuty(flow.name, self._folder)

    def notes(self) -> Sequence[str]:
        notes = (self._snapshots.note, self._compaction.note, self._checkpoints.note)
        return [note for note in notes if note]

    @property
    def begun(self) -> bool:
        """Whether the manifest has positions of this selection of topics: a later topic starts at 0."""
        return self._last.selection == selection(self._flow.spec)

    def forget(self) -> None:
        self._claimed = False  # the manifest is read again: the commit may have been written
        self._schemas.forget()
        self._compaction.forget()

    async def positions(self, cluster: KafkaCluster) -> Positions:
        """Claims the manifest, checks it, and takes a snapshot of a backup's topics where one is due.

        The snapshot comes before the round reads where its partitions end.
        """
        if not self._claimed:
            await finished(self._claim(cluster))
        await asyncio.to_thread(self._folder.check, self._manifest)
        await finished(self._snapshots.run(cluster, self._flow.generation, self._flow.selected))
        return self._positions()

    def _positions(self) -> Positions:
        return {
            PartitionKey(self._flow.name, *at): position for at, position in self._manifest.positions.items()
        }

    @property
    def _last(self) -> Commit:
        assert self._manifest.last is not None
        return self._manifest.last

    async def _claim(self, source: KafkaCluster) -> None:
        """Reads the manifest, finishes its last commit, and claims it for this generation (R3)."""
        name, files, generation = self._flow.name, self._files, self._flow.generation
        state = await asyncio.to_thread(self._folder.read)
        await asyncio.to_thread(self._folder.check_exclusive)
        job = self._flow.job
        owner = ManifestOwner(topology=job.topology, job=job.job, cluster_id=source.cluster_id)
        if problem := owner_problem(state, owner, files.folder):
            raise ManifestProblem(problem)
        last = state.last
        if last is None and self._flow.shared.ledger.all_progress(name):
            raise ManifestProblem(
                f"the manifest of {name} is gone from {files.folder}, where it has copied records:"
                " mount or restore the folder, or give the flow another name to copy everything anew"
            )
        if last is not None and last.generation > generation:
            raise ManifestProblem(
                f"{files.folder} was claimed by generation {last.generation}, and this is generation"
                f" {generation}: another driver has the flow, or its ledger was lost"
            )
        if last is not None and last.format != files.format:
            raise ManifestProblem(
                f"{files.folder} holds {last.format} files of this flow, and the topology says"
                f" {files.format}: give the flow another name, or another folder"
            )
        if last is not None:
            await asyncio.to_thread(self._folder.publish, last.files)
            await asyncio.to_thread(self._folder.hide, last.replaced)
        if last is None or last.generation != generation:
            claim = Commit(
                number=last.number + 1 if last is not None else 1,
                flow=name,
                owner=owner,
                generation=generation,
                at_ms=now_ms(),
                format=files.format,
                complete=True,
                selection=last.selection if last is not None else "",
            )
            await asyncio.to_thread(self._folder.add, state, claim)
            log_event(
                "manifest_claimed",
                key=name,
                flow=name,
                folder=files.folder,
                commit=claim.number,
                generation=generation,
            )
        await asyncio.to_thread(self._folder.clear_staging, generation)
        self._manifest, self._claimed = state, True

    async def copy(self, read: Sequence[ExportPartition], tasks: RoundTasks) -> Copied[FilePosition]:
        """Runs a round's tasks and commits what they staged. Raises TasksFailed, EndpointUnavailable."""
        done = await self._export(read, tasks)
        if any(partition.files for partition in done):
            await self._schemas.run(sorted({topic for topic, _ in self._manifest.positions}))
        await finished(self._take(done))
        return Copied(done, self._positions())

    async def _export(self, read: Sequence[ExportPartition], tasks: RoundTasks) -> list[ExportPartition]:
        spec, job, count = self._flow.spec, self._flow.job, await tasks.count()
        ticket = ExportTicket(
            flow=spec.name,
            generation=self._flow.generation,
            cluster_name=spec.source,
            cluster=job.clusters[spec.source],
            client_id=client_id(job.job, 0),
            files=self._files,
            partitions=[],
            round_s=ROUND_S,
            rate=max(spec.rate_limit // min(count, len(read)), 1) if spec.rate_limit is not None else None,
            transform=spec.transform,
            unpacked_bytes=job.launch.unpacked_bytes,
        )
        tickets = [encode(replace(ticket, partitions=some)) for some in spread(read, count)]
        if spec.transform is None:
            texts = await tasks.run(run_export, tickets)
        else:
            assert self._files.format != "raw", "raw files hold batches as they are"
            texts = await tasks.run_sql(spec.transform, self._files.format, tickets)
        results = EXPORT.results(texts)
        if failed := next((result.error for result in results if result.error), ""):
            raise EndpointUnavailable(failed)
        tasks.worker = results[0].host, results[0].process
        return [partition for result in results for partition in result.done]

    async def _take(self, done: Sequence[ExportPartition]) -> None:
        """Commits what the tasks of a round have staged, in several commits where it is much."""
        await asyncio.to_thread(
            self._folder.check_staged, [file for partition in done for file in partition.files]
        )
        before = self._manifest.positions
        for some in commits_of(done):
            positions = [partition.position for partition in some]
            if moved := [after for after in positions if after.position > before[after.key].position]:
                await self._commit(moved, [file for partition in some for file in partition.files])

    async def commit(self, moved: Mapping[PartitionKey, FilePosition | None]) -> None:
        await self._commit([position for position in moved.values() if position is not None], ())

    async def _commit(self, moved: Sequence[FilePosition], files: Sequence[DataFile]) -> None:
        """Adds a commit, moves its files into place, and writes the progress to the ledger.

        Raises ManifestTaken, ManifestProblem, EndpointUnavailable, WireError.
        """
        shared = self._flow.shared
        await shared.leadership.ensure()
        stats = counted(self.stats, self._manifest.positions, moved)
        commit = replace(self._next_commit(), positions=list(moved), files=list(files))
        failpoint("before_end")
        await asyncio.to_thread(self._folder.add, self._manifest, commit)
        failpoint("after_end")
        await asyncio.to_thread(self._folder.publish, files)
        self._compaction.apply(commit)
        self.stats = stats
        failpoint("before_ledger")
        await shared.leadership.commit(self._changed_progress())

    def _next_commit(self) -> Commit:
        """Returns the commit behind the last one, without positions and files."""
        return Commit(
            number=self._last.number + 1,
            flow=self._flow.name,
            owner=self._last.owner,
            generation=self._flow.generation,
            at_ms=now_ms(),
            format=self._files.format,
            selection=selection(self._flow.spec),
        )

    def _changed_progress(self) -> dict[LedgerKey, LedgerValue | None]:
        """Returns the progress of the selected partitions of which the ledger's is another."""
        positions = self._positions()
        selected = self._flow.selected({key.topic for key in positions})
        records: dict[LedgerKey, LedgerValue | None] = {}
        for key, position in positions.items():
            before = self._flow.shared.ledger.progress(key)
            after = progress_of(position, self._flow.generation)
            same = isinstance(before, Progress) and _facts_of(before) == _facts_of(after)
            if key.topic in selected and not same:
                records[ProgressKey(key)] = after
        return records

    def committed(self, status: PartitionStatus, position: FilePosition | None) -> PartitionStatus:
        if position is None:
            return status
        moved = status.destination_end not in (-1, position.position)
        return replace(
            status,
            destination_end=position.position,
            last_commit_ms=self._last.at_ms if moved else status.last_commit_ms,
            transactions=status.transactions + moved,
        )

    async def tidy(self, tasks: RoundTasks) -> bool:
        """Merges small files and writes a checkpoint of the manifest, where that is due."""
        more = await self._compact(tasks)
        if self._checkpoints.is_due(self._manifest):
            await finished(self._write_checkpoint())
        return more

    async def _compact(self, tasks: RoundTasks) -> bool:
        """Merges small files where that is due. Returns whether there is more to merge at once."""
        duty = self._compaction
        if not duty.is_due:
            return False
        merged = await duty.stage(self._flow.generation, await tasks.count(), tasks.run)
        if merged:
            await finished(self._replace(merged))
        return bool(merged) and duty.has_more

    async def _replace(self, merged: Sequence[MergedFiles]) -> None:
        await self._flow.shared.leadership.ensure()
        await self._compaction.commit(self._manifest, self._next_commit(), merged)
        replaced = sum(len(files.replaced) for files in merged if files.file is not None)
        self.stats = replace(self.stats, merged_files=self.stats.merged_files + replaced)

    async def _write_checkpoint(self) -> None:
        await self._flow.shared.leadership.ensure()
        await self._checkpoints.run(self._manifest, self._next_commit())


def commits_of(done: Iterable[ExportPartition]) -> Iterator[list[ExportPartition]]:
    """Yields the partitions of a round by commit: a commit has bounds, so that it can be read again."""
    some: list[ExportPartition] = []
    files = 0
    for partition in done:
        some.append(partition)
        files += len(partition.files)
        if files >= COMMIT_FILES or len(some) >= COMMIT_FILES:
            yield some
            some, files = [], 0
    if some:
        yield some


def spread(read: Sequence[ExportPartition], tasks: int) -> list[list[ExportPartition]]:
    """Spreads partitions over at most `tasks` tickets, so that each has about as many records to copy."""
    loads: list[tuple[int, list[ExportPartition]]] = [(0, []) for _ in range(min(tasks, len(read)))]
    for partition in sorted(read, key=lambda partition: partition.position.position - partition.end):
        least = min(range(len(loads)), key=lambda at: loads[at][0])
        load, partitions = loads[least]
        loads[least] = load + partition.end - partition.position.position, [*partitions, partition]
    return [partitions for _, partitions in loads]


def counted(
    stats: FlowStats, before: Mapping[tuple[str, int], FilePosition], moved: Sequence[FilePosition]
) -> FlowStats:
    """Returns the counts of a flow after a commit that moves these positions."""
    for after in moved:
        earlier = before.get(after.key)
        if earlier is not None and earlier.topic_id == after.topic_id:
            stats = replace(
                stats,
                records=stats.records + after.records - earlier.records,
                bytes=stats.bytes + after.bytes - earlier.bytes,
                dropped=stats.dropped + after.dropped - earlier.dropped,
                tombstones=stats.tombstones + after.tombstones - earlier.tombstones,
            )
    return replace(stats, commits=stats.commits + 1)


def progress_of(position: FilePosition, generation: int) -> Progress:
    """Returns a position as progress: the topic stands for its own files, offset for offset."""
    topic_id = bytes.fromhex(position.topic_id)
    first = first_progress(
        generation=generation,
        source_topic_id=topic_id,
        destination_topic=position.topic,
        destination_topic_id=topic_id,
        position=position.position,
        destination_end=position.position,
        now_ms=now_ms(),
    )
    return replace(
        first,
        records=position.records,
        bytes=position.bytes,
        dropped=position.dropped,
        last_timestamp=position.last_timestamp,
        gaps=tuple(Gap(gap.low, gap.end, "lost", gap.at_ms) for gap in position.gaps),
        tombstones=position.tombstones,
    )


def _facts_of(progress: Progress) -> tuple[object, ...]:
    """Returns what makes it worth writing progress to the ledger again."""
    return progress.generation, progress.source_topic_id, progress.position, progress.records, progress.gaps
