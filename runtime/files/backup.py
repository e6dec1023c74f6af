"""Reads the raw files of a flow as a backup: which topics it holds, up to which offset, and in which files.

The manifest is read from its newest checkpoint on and its chain of digests is checked: what was edited,
exchanged or removed is a ManifestProblem. A topic that was deleted and made again is another lineage, with
files of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

from crc32c import crc32c
from msgspec.structs import replace

from runtime.batch import Batch, CorruptBatch, RecordSet, records, walk
from runtime.batch.codecs import UnpackedSizeExceeded
from runtime.batch.layout import Codec
from runtime.batch.rewrite import batch_of, records_of
from runtime.batch.spec import READ_UNPACKED
from runtime.batch.splice import Raw, join
from runtime.batch.varint import MalformedBytes
from runtime.contract.client.stores import Setting
from runtime.contract.records.manifest import Commit, DataFile, FilePosition, ManifestCheckpoint
from runtime.contract.spec.files import OWN_FOLDER, name_problem
from runtime.contract.spec.naming import TopicPartition, is_other_topic
from runtime.files.manifest import ManifestFolder, ManifestProblem, as_unavailable
from runtime.files.store import FileStore, LeadsOutside, LocalFolder, StoredFile

_WINDOW: Final = 8 << 20  # bytes of a file that are read at a time (R8)


class DamagedFile(Exception):
    """A file of a backup is missing, has another size or another checksum; the text names it."""


@dataclass(slots=True)
class TopicLineage:
    """One topic of a backup: all its partitions, with the files of each in the order of offsets.

    `begins` has the first position of each partition: the flow started there. `ids` are all ids that the
    topic had, the newest one last: a cluster has none before an upgrade.
    """

    name: str
    ids: list[str]
    since_ms: int
    begins: dict[int, int] = field(default_factory=dict)
    positions: dict[int, FilePosition] = field(default_factory=dict)
    files: dict[int, list[DataFile]] = field(default_factory=dict)

    @property
    def topic_id(self) -> str:
        """The newest id."""
        return self.ids[-1]

    @property
    def partitions(self) -> int:
        """How many partitions the topic had at least."""
        return max(self.positions, default=-1) + 1


@dataclass(slots=True)
class Backup:
    """The state of one flow's manifest after its commit `commit`, whose digest is `digest`."""

    flow: str
    cluster_id: str = ""
    format: str = "raw"
    commit: int = 0
    digest: str = ""
    at_ms: int = 0
    lineages: dict[str, list[TopicLineage]] = field(default_factory=dict)

    def topics(self, until_ms: int | None = None) -> dict[str, TopicLineage]:
        """Returns the newest lineage of each topic; with `until_ms` the newest one that had begun by then."""
        topics = {}
        for name, lineages in sorted(self.lineages.items()):
            begun = [lineage for lineage in lineages if until_ms is None or lineage.since_ms <= until_ms]
            topics[name] = begun[-1] if begun else lineages[0]
        return topics

    def begin(self, checkpoint: ManifestCheckpoint) -> None:
        """Begins with the state of a checkpoint, without its files."""
        self.cluster_id, self.format = checkpoint.owner.cluster_id, checkpoint.format
        self.commit, self.digest, self.at_ms = checkpoint.number, checkpoint.commit, checkpoint.at_ms
        for topic in checkpoint.topics:
            positions = {position.partition: position for position in topic.positions}
            lineage = TopicLineage(topic.name, list(topic.ids), topic.since_ms, dict(topic.begins), positions)
            self.lineages.setdefault(topic.name, []).append(lineage)

    def add_files(self, files: Iterable[DataFile]) -> None:
        """Adds files of the checkpoint, in their order. Raises ManifestProblem."""
        for file in files:
            lineages = self.lineages.get(file.topic, ())
            lineage = next(
                (candidate for candidate in reversed(lineages) if file.topic_id in candidate.ids), None
            )
            if lineage is None:
                raise ManifestProblem(
                    f"the checkpoint {self.commit} of {self.flow} lists {file.path}, and not its topic:"
                    " restore the folder from a copy"
                )
            lineage.files.setdefault(file.partition, []).append(file)

    def take(self, commit: Commit, digest: str) -> None:
        """Applies the next commit."""
        self.cluster_id, self.format = commit.owner.cluster_id, commit.format
        self.commit, self.digest, self.at_ms = commit.number, digest, commit.at_ms
        for position in commit.positions:
            lineage = self._lineage(position.topic, position.topic_id, commit.at_ms)
            lineage.begins.setdefault(position.partition, position.position)
            lineage.positions[position.partition] = position
        if commit.replaced:
            self.take_merged(commit)
            return
        for file in commit.files:
            files = self._lineage(file.topic, file.topic_id, commit.at_ms).files
            files.setdefault(file.partition, []).append(file)

    def take_merged(self, commit: Commit) -> None:
        """Puts the merged files of a commit in the place of those that they replace, where these are known.

        So a state before the commit can still be read: a merged file may hold records behind that state.
        """
        replaced = set(commit.replaced)
        for merged in commit.files:
            for lineage in self.lineages.get(merged.topic, ()):
                put_merged(lineage.files.get(merged.partition, []), merged, replaced)

    def _lineage(self, topic: str, topic_id: str, at_ms: int) -> TopicLineage:
        """Returns the lineage of a topic. A topic that got its first id in an upgrade continues its own."""
        lineages = self.lineages.setdefault(topic, [])
        for lineage in reversed(lineages):
            if lineage.topic_id == topic_id:
                return lineage
        if lineages and not is_other_topic(bytes.fromhex(lineages[-1].topic_id), bytes.fromhex(topic_id)):
            lineages[-1].ids.append(topic_id)
            return lineages[-1]
        lineages.append(TopicLineage(topic, [topic_id], at_ms))
        return lineages[-1]


def put_merged(files: list[DataFile], merged: DataFile, replaced: Container[str]) -> bool:
    """Puts a merged file in the place of those of the list that it replaces. Returns whether there are any.

    `replaced` are the paths of all files that its commit replaces.
    """
    folder = PurePath(merged.path).parent
    places = [
        at
        for at, file in enumerate(files)
        if file.path in replaced
        and merged.first <= file.first
        and file.end <= merged.end
        and file.topic_id == merged.topic_id
        and PurePath(file.path).parent == folder
    ]
    for at in reversed(places[1:]):
        del files[at]
    for at in places[:1]:
        files[at] = merged
    return bool(places)


def flows_in(store: FileStore) -> list[str]:
    """Returns the names of the flows that have a manifest in the endpoint's folder.

    Raises FileNotFoundError where the folder is not there; EndpointUnavailable.
    """
    if isinstance(store, LocalFolder):
        store.check()
    with as_unavailable(store):
        store.check()
        named = (name for name in store.names(OWN_FOLDER) if name_problem(name) is None)
        return sorted(name for name in named if store.names(f"{OWN_FOLDER}/{name}/log"))


def read_backup(
    endpoint: str,
    flow: str,
    commit: int | None = None,
    digest: str = "",
    client: Mapping[str, Setting] | None = None,
) -> Backup:
    """Reads the manifest of a flow up to a commit, or to its newest one, from a checkpoint on.

    Files that later commits have merged are those of the later commits, with the same records. Raises
    ManifestProblem where the manifest can't be trusted, or where `commit` has not that digest;
    EndpointUnavailable.
    """
    folder = ManifestFolder(endpoint, flow, client)
    backup = Backup(flow)
    with as_unavailable(folder.store):
        try:
            checkpoint, numbers = folder.base(commit)
        except FileNotFoundError:
            if commit is None:
                raise
            raise _not_planned(endpoint, flow) from None
        if checkpoint is not None:
            backup.begin(checkpoint)
            for ref in checkpoint.lists:
                backup.add_files(folder.listed_files(ref))
        for next_commit, seal in folder.chained(numbers, backup.digest):
            if commit is None or next_commit.number <= commit:
                backup.take(next_commit, seal)
            elif next_commit.replaced:
                backup.take_merged(next_commit)
    if commit is not None and (backup.commit, backup.digest) != (commit, digest):
        raise _not_planned(endpoint, flow)
    return backup


def _not_planned(endpoint: str, flow: str) -> ManifestProblem:
    return ManifestProblem(
        f"the manifest of {flow} in {endpoint} is not the one that was planned with: plan again"
    )


def windows(path: StoredFile, where: TopicPartition) -> Iterator[list[RecordSet]]:
    """Yields the batches of a raw file, some MiB at a time, each with its checksum verified.

    Raises DamagedFile, CorruptBatch, OSError.
    """
    with path.open() as file:
        rest = b""
        size = _WINDOW
        while True:
            text = file.read(size)
            if not text and not rest:
                return
            view = memoryview(rest + text if rest else text)
            walked = walk(view, where)
            taken = sum(record_set.size for record_set in walked.sets)
            if walked.needed and not text:
                raise DamagedFile(f"{path} ends inside a batch: restore it from a copy")
            if walked.failure is not None and not walked.needed:
                raise walked.failure
            rest = bytes(view[taken:])
            size = max(_WINDOW, walked.needed - len(rest)) if walked.needed else _WINDOW
            if walked.sets:
                yield walked.sets


def check_file(folder: ManifestFolder, file: DataFile) -> StoredFile:
    """Returns a file whose size and checksum are those of the manifest.

    Raises DamagedFile, and OSError where an object store does not answer.
    """
    path = folder.store.file(file.path)
    seen, size = 0, 0
    try:
        path = folder.place(file)
        with path.open() as opened:
            while text := opened.read(_WINDOW):
                seen, size = crc32c(text, seen), size + len(text)
    except LeadsOutside as link:
        raise DamagedFile(f"{link}, and restore it from a copy") from None
    except OSError as error:
        if not isinstance(error, FileNotFoundError) and not isinstance(folder.store, LocalFolder):
            raise
        raise DamagedFile(
            f"{path} can't be read: {error.strerror or error}; restore it from a copy"
        ) from error
    if size != file.size:
        raise DamagedFile(f"{path} has {size} bytes in place of {file.size}: restore it from a copy")
    if seen != file.crc32c:
        raise DamagedFile(f"{path} has another checksum than the manifest says: restore it from a copy")
    return path


@dataclass(frozen=True, slots=True)
class PartitionCut:
    """Where a restore of a partition ends: at the offset `end`, after `records` records of `bytes` bytes.

    `last_timestamp` is the newest one of them, -1 where there is none.
    """

    end: int
    records: int
    bytes: int
    last_timestamp: int


def cut(
    folder: ManifestFolder, lineage: TopicLineage, partition: int, until_ms: int | None = None
) -> PartitionCut:
    """Returns where the restore of a partition ends.

    With `until_ms` it ends before the first record, by offset, whose timestamp is later. Records behind that
    one are left out whatever their timestamps are: a partition is always restored up to one offset. Raises
    DamagedFile, CorruptBatch, OSError.
    """
    count = size = 0
    newest = -1
    files = lineage.files.get(partition, ())
    ends = {file.path: file.end for file in files}
    for file in files_up_to(files, lineage.positions[partition].position):
        is_later = until_ms is not None and file.last_timestamp > until_ms
        if is_later or file.end < ends[file.path]:
            where = TopicPartition(lineage.name, partition)
            later, before, last = _first_later(check_file(folder, file), where, file, until_ms)
            count, size = count + before, size + file.size * before // max(file.records, 1)
            newest = max(newest, last)
            if later is not None:
                return PartitionCut(later, count, size, newest)
            continue
        count, size = count + file.records, size + file.size
        newest = max(newest, file.last_timestamp)
    return PartitionCut(lineage.positions[partition].position, count, size, newest)


def _first_later(
    path: StoredFile, where: TopicPartition, file: DataFile, until_ms: int | None
) -> tuple[int | None, int, int]:
    """Returns the offset of the first later record of a file, how many of its records precede it, and the
    newest timestamp of those. The offset is None where no record is later: all records are counted then.
    """
    before, newest = 0, -1
    for sets in windows(path, where):
        for member in sets:
            inside = file.first <= member.base_offset and member.next_offset <= file.end
            if (
                isinstance(member, Batch)
                and inside
                and (until_ms is None or member.max_timestamp <= until_ms)
            ):
                before, newest = before + member.records, max(newest, member.max_timestamp)
                continue
            for record in records(member, where):
                if not file.first <= record.offset < file.end:
                    continue
                if until_ms is not None and record.timestamp > until_ms:
                    return record.offset, before, newest
                before, newest = before + 1, max(newest, record.timestamp)
    return None, before, newest


def files_up_to(files: Iterable[DataFile], end: int) -> list[DataFile]:
    """Returns the files that hold offsets below `end`, in order; what a file holds beyond it is cut off.

    Where the source had lost records, and the flow went back, a later file begins before the end of an
    earlier one, perhaps in its place: then the records of the later one count, as they do at the source.
    """
    kept: list[DataFile] = []
    for file in files:
        if file.first >= end:
            continue
        while kept and kept[-1].first >= file.first:
            kept.pop()
        if kept and kept[-1].end > file.first:
            kept[-1] = replace(kept[-1], end=file.first)
        kept.append(replace(file, end=min(file.end, end)))
    return kept


class BackedUpRecords:
    """The records of a partition's files, in order, to be compared with others.

    A batch is unpacked only where it must be: two batches with equal bytes hold equal records. `change` makes
    of each batch what is compared.
    """

    def __init__(
        self,
        files: Iterable[tuple[DataFile, StoredFile]],
        where: TopicPartition,
        change: Callable[[Batch], Batch] = lambda batch: batch,
    ) -> None:
        self._where = where
        self._change = change
        self._following = self._sets(files)
        self._batch: Batch | None = None
        self._records: deque[Raw] = deque()

    def takes_whole(self, other: Batch) -> bool:
        """Returns whether the next batch is this one, byte for byte; then it is taken."""
        self._read_on()
        mine = self._batch
        if mine is None:
            return False
        same = (
            mine.records == other.records
            and mine.whole
            and other.whole
            and mine.codec == other.codec
            and (mine.base_timestamp, mine.max_timestamp) == (other.base_timestamp, other.max_timestamp)
            and not other.log_append_time
            and mine.body == other.body
        )
        if same:
            self._batch = None
        return same

    def pop(self) -> Raw | None:
        """Returns the offset, the timestamp and the bytes of the next record; None where there is none."""
        self._read_on()
        if self._batch is not None:
            self._records.extend(raw_records(self._batch, self._where))
            self._batch = None
        return self._records.popleft() if self._records else None

    def _read_on(self) -> None:
        if self._batch is None and not self._records:
            self._batch = next(self._following, None)

    def _sets(self, files: Iterable[tuple[DataFile, StoredFile]]) -> Iterator[Batch]:
        """Yields batches; those that are cut off or were stamped by the broker are made anew."""
        for file, path in files:
            for sets in windows(path, self._where):
                for member in sets:
                    if member.next_offset <= file.first or member.base_offset >= file.end:
                        continue
                    inside = file.first <= member.base_offset and member.next_offset <= file.end
                    if isinstance(member, Batch) and inside and not member.log_append_time:
                        yield self._change(member)
                        continue
                    raw = raw_records(member, self._where)
                    if kept := [record for record in raw if file.first <= record[0] < file.end]:
                        data, first, latest = join(kept)
                        body = memoryview(data)
                        plain = batch_of(kept[0][0], len(kept), Codec.NONE, body, first, latest)
                        yield self._change(plain)


def raw_records(member: RecordSet, where: TopicPartition) -> list[Raw]:
    """Returns the offset, the timestamp and the bytes of each record. Raises CorruptBatch."""
    try:
        return records_of(member, READ_UNPACKED)
    except (MalformedBytes, IndexError, UnpackedSizeExceeded) as error:
        raise CorruptBatch(where, member.base_offset, f"unreadable records: {error}") from None
