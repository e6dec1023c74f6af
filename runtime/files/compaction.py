"""Chooses the small files of a flow that are merged, and merges them in a Spark task.

Only files of one partition of one topic (by its id) in one folder of the layout are merged, and only
neighbours: no other file of that folder holds offsets between them. A merged file holds the same records in
the same order. Like the files of a round, it is staged until the driver commits it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

import msgspec

from runtime.batch import BatchFailure
from runtime.contract.records.manifest import Commit, DataFile, SmallFiles
from runtime.contract.spec.files import FilesSpec
from runtime.contract.spec.naming import TopicPartition
from runtime.files.backup import DamagedFile, check_file, put_merged, windows
from runtime.files.formats import ROW_GROUP_BYTES, StagedFile, parquet_writer
from runtime.files.manifest import ManifestFolder, as_unavailable
from runtime.files.store import StoredFile
from runtime.files.tasks import TaskKind

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_COPIED: Final = 8 << 20  # bytes that are copied at a time (R8)
_FOLDERS: Final = 48  # the newest ones of a partition: late records of older days stay in files of their own
_MOST_FILES: Final = 20_000  # small files that are remembered, and written to a commit
_MOST_BYTES: Final = 512 << 20  # of a merged file: a pass holds up the rounds
PASS_BYTES: Final = 256 << 20  # of one task in one pass: rounds go on in between
_PASS_FILES: Final = 2_000

_Group = tuple[str, str, int, str]  # topic, its id, partition, folder


class FileIndex:
    """The files of a flow that may still be merged, by folder, in the order of offsets.

    A larger file stays in the list where it parts two small ones.
    """

    def __init__(self, below: int, files: Iterable[DataFile] = ()) -> None:
        self.below = below
        self._groups: dict[_Group, list[DataFile]] = {}
        for file in files:
            self._groups.setdefault(_group(file), []).append(file)

    def apply(self, commit: Commit) -> None:
        """Applies the next commit."""
        self.take(commit.files, commit.replaced)

    def take(self, files: Iterable[DataFile], replaced: Iterable[str] = ()) -> None:
        """Adds the next files, in the place of those that they replace."""
        gone = set(replaced)
        for file in files:
            key = _group(file)
            group = self._groups.pop(key, [])  # the group that was written last is the last one
            group = [member for member in group if member.path != file.path]
            if not put_merged(group, file, gone):
                group.append(file)
            kept: list[DataFile] = []  # the small files, and one larger file between two of them
            for member in group:
                if member.size < self.below or (kept and kept[-1].size < self.below):
                    kept.append(member)
            self._groups[key] = kept
        self._trim()

    def _trim(self) -> None:
        """Removes what would make the index grow without a bound: folders that others have followed."""
        of: dict[tuple[str, int], int] = {}
        total = 0
        for key in reversed(list(self._groups)):
            topic, _, partition, _ = key
            of[topic, partition] = of.get((topic, partition), 0) + 1
            total += len(self._groups[key])
            if of[topic, partition] > _FOLDERS or total > _MOST_FILES or not self._groups[key]:
                total -= len(self._groups.pop(key))

    def small(self) -> SmallFiles:
        """Returns the state as a commit records it."""
        return SmallFiles(below=self.below, files=[file for group in self._groups.values() for file in group])

    def merges(self, size: int) -> list[list[DataFile]]:
        """Returns the files that are to be merged, each list into one file of at most `size` bytes."""
        most = min(size, _MOST_BYTES)
        return [
            chosen
            for group in self._groups.values()
            for run in _runs(group, self.below, most)
            for chosen in _worthwhile(run, self.below)
        ]


def _group(file: DataFile) -> _Group:
    return file.topic, file.topic_id, file.partition, str(PurePath(file.path).parent)


def _runs(files: Sequence[DataFile], below: int, size: int) -> Iterator[list[DataFile]]:
    """Yields the runs of small neighbours that fit into one file.

    Offsets that go back, after the source had lost records, end a run.
    """
    run: list[DataFile] = []
    total = 0
    for file in files:
        if run and (file.size >= below or total + file.size > size or file.first < run[-1].end):
            yield run
            run, total = [], 0
        if file.size < below:
            run.append(file)
            total += file.size
    if run:
        yield run


def _worthwhile(run: list[DataFile], below: int) -> Iterator[list[DataFile]]:
    """Yields the parts of a run whose largest file at least doubles, or is small no longer after the merge.

    So a byte is written again only as often as its file doubles: some ten times from 16 KiB to 16 MiB.
    """
    if len(run) < 2:
        return
    largest = max(range(len(run)), key=lambda at: run[at].size)
    total = sum(file.size for file in run)
    if total >= min(2 * run[largest].size, below):
        yield run
        return
    yield from _worthwhile(run[:largest], below)
    yield from _worthwhile(run[largest + 1 :], below)


def one_pass(merges: Sequence[list[DataFile]], tasks: int) -> list[list[list[DataFile]]]:
    """Returns the merges of the next pass, spread over at most so many tasks."""
    loads: list[tuple[int, list[list[DataFile]]]] = [(0, []) for _ in range(tasks)]
    files = 0
    for merge in merges:
        least = min(range(tasks), key=lambda at: loads[at][0])
        load, chosen = loads[least]
        if files and (load >= PASS_BYTES or files + len(merge) > _PASS_FILES):
            break
        files += len(merge)
        loads[least] = load + sum(file.size for file in merge), [*chosen, merge]
    return [chosen for _, chosen in loads if chosen]


def read_index(folder: ManifestFolder, below: int) -> FileIndex:
    """Reads the commits since the last one that lists the small files, or else from the newest checkpoint on.

    Raises ManifestProblem, EndpointUnavailable.
    """
    index = FileIndex(below)

    def lists_them(commit: Commit) -> bool:
        return commit.small is not None and commit.small.below >= below

    with as_unavailable(folder.store):
        checkpoint, numbers = folder.base()
        commits = folder.since(numbers, lists_them)
        if commits is None and checkpoint is not None:
            for ref in checkpoint.lists:
                index.take(folder.listed_files(ref))
            commits = folder.chained(numbers, checkpoint.commit)
        for commit, _ in commits or folder.chained(numbers):
            if lists_them(commit) and commit.small is not None:
                index = FileIndex(below, commit.small.files)
            else:
                index.apply(commit)
    return index


class CompactionTicket(msgspec.Struct, frozen=True):
    """Describes the merges of one task: each list of files becomes one file."""

    flow: str
    generation: int
    files: FilesSpec
    merges: list[list[DataFile]]


class MergedFiles(msgspec.Struct, frozen=True):
    """One staged file and those that it replaces. Without `file`, `why` says why there is none.

    It is empty where nothing is wrong: the files have different columns.
    """

    replaced: list[DataFile]
    file: DataFile | None = None
    why: str = ""


COMPACTION: Final = TaskKind(CompactionTicket, MergedFiles)


def compact(tickets: Iterable[bytes]) -> Iterator[bytes]:
    """Carries out the tickets of a task and yields their encoded results."""
    for text in tickets:
        yield COMPACTION.run(text, _compact)


async def _compact(ticket: CompactionTicket, done: list[MergedFiles]) -> None:
    folder = ManifestFolder(ticket.files.folder, ticket.flow, ticket.files.client)
    with as_unavailable(folder.store):
        folder.store.check()
        for files in ticket.merges:
            done += _merged(folder, ticket.files, files, ticket.generation)


def _merged(
    folder: ManifestFolder, spec: FilesSpec, files: list[DataFile], generation: int
) -> list[MergedFiles]:
    """Merges files. Where one of them is not as the manifest says, all stay as they are. Raises OSError."""
    where = TopicPartition(files[0].topic, files[0].partition)
    try:
        paths = [check_file(folder, file) for file in files]
        parts = [files]
        if spec.format == "raw":
            parts = [files[: _joinable(files, paths, where)]]
        elif spec.format == "parquet":
            parts = _alike(files, paths, spec)
    except (DamagedFile, BatchFailure) as damaged:
        return [MergedFiles(files, None, str(damaged))]
    if not parts:
        return [MergedFiles(files)]
    if len(parts[0]) < 2:
        return [MergedFiles(parts[0], None, f"{paths[0]} can't be joined with the file after it")]
    at = {file.path: path for file, path in zip(files, paths, strict=True)}
    return [_joined(folder, spec, part, [at[file.path] for file in part], generation) for part in parts]


def _alike(files: Sequence[DataFile], paths: Sequence[StoredFile], spec: FilesSpec) -> list[list[DataFile]]:
    """Returns the neighbours that have the same columns, as far as it is worthwhile to merge them.

    A changed transform of the flow gives its values other columns. Raises DamagedFile, OSError.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    runs: list[list[DataFile]] = []
    last: pa.Schema | None = None
    for data_file, path in zip(files, paths, strict=True):
        try:
            with path.open() as file:
                schema = pq.read_schema(file)
        except pa.ArrowException as error:
            raise DamagedFile(f"{path} can't be read as Parquet: {error}") from error
        if last is not None and schema.equals(last):
            runs[-1].append(data_file)
        else:
            runs.append([data_file])
        last = schema
    if len(runs) == 1 or spec.compact is None:
        return [run for run in runs if len(run) > 1]
    return [part for run in runs for part in _worthwhile(run, spec.compact.below_bytes)]


def _joined(
    folder: ManifestFolder,
    spec: FilesSpec,
    files: list[DataFile],
    paths: Sequence[StoredFile],
    generation: int,
) -> MergedFiles:
    staged = StagedFile(folder, generation)
    try:
        if spec.format == "parquet":
            _join_parquet(staged, paths, sum(file.records for file in files))
        else:  # JSON lines and record batches stand one behind the other
            for path in paths:
                with path.open() as source:
                    while text := source.read(_COPIED):
                        staged.write(text)
        staged.close()
    except (DamagedFile, BatchFailure) as damaged:
        staged.discard()
        return MergedFiles(files, None, str(damaged))
    except OSError:
        staged.discard()
        raise
    for file in files:
        staged.count(file.first, file.end, file.records, file.first_timestamp, file.last_timestamp)
    whole = files[0]  # the commit gives the merged file a path of its own
    return MergedFiles(files, staged.described(whole.path, whole.topic, whole.topic_id, whole.partition))


def _joinable(files: Sequence[DataFile], paths: Sequence[StoredFile], where: TopicPartition) -> int:
    """Returns how many of the raw files can be joined: in the others, the first batch holds records that are
    not part of the file. Raises DamagedFile, BatchFailure, OSError.
    """
    for at, (file, path) in enumerate(zip(files, paths, strict=True)):
        sets = next(windows(path, where), None)
        if at and (sets is None or sets[0].base_offset < file.first):
            return at
    return len(files)


def _join_parquet(staged: StagedFile, paths: Sequence[StoredFile], records: int) -> None:
    """Writes the rows of the files in their order, in row groups as large as those of a round.

    Raises DamagedFile where a file is no Parquet, or has another number of rows.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with paths[0].open() as file:
            schema = pq.read_schema(file)
        written = 0
        with parquet_writer(staged, schema) as writer:
            held: list[pa.Table] = []
            for path in paths:
                with path.open() as file, pq.ParquetFile(file) as rows:
                    for number in range(rows.num_row_groups):
                        held.append(rows.read_row_group(number))
                        if sum(table.nbytes for table in held) >= ROW_GROUP_BYTES:
                            written += _write(writer, held)
            if held:
                written += _write(writer, held)
    except pa.ArrowException as error:
        raise DamagedFile(f"{paths[0]} and the files after it can't be read as Parquet: {error}") from error
    if written != records:
        raise DamagedFile(f"{paths[0]} and the files after it hold {written} rows in place of {records}")


def _write(writer: pq.ParquetWriter, held: list[pa.Table]) -> int:
    import pyarrow as pa

    table = pa.concat_tables(held).combine_chunks()
    writer.write_table(table, row_group_size=len(table))
    held.clear()
    return len(table)
