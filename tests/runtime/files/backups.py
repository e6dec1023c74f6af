"""Backups that a test writes by hand: a manifest with real commits, and raw files with real batches."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crc32c import crc32c
from msgspec.structs import replace

from runtime.batch import Batch, Record, walk
from runtime.batch.spec import MAX_UNPACKED
from runtime.contract.records.manifest import Commit, DataFile, FilePosition, ManifestOwner
from runtime.contract.spec.files import FilesSpec
from runtime.contract.spec.naming import TopicPartition
from runtime.files.formats import PartitionFiles
from runtime.files.manifest import ManifestFolder, ManifestState
from runtime.files.snapshots import SnapshotFolder
from runtime.files.store import LocalFolder
from tests.runtime.batch.forge import batch_bytes, sets

OWNER = ManifestOwner(topology="t", job="lake", cluster_id="c1")
ONE, TWO, UNNAMED = "11" * 16, "22" * 16, "00" * 16
WHERE = TopicPartition("orders", 0)

Place = tuple[str, dict[str, Any]]  # the address of an endpoint, and the settings of its client


def text_of(first: int, times: Sequence[int]) -> bytes:
    return batch_bytes([Record(first + at, stamp, b"k", b"v", ()) for at, stamp in enumerate(times)])


def partition_files(
    folder: Path, form: Any, where: TopicPartition = WHERE, topic_id: str = "ab" * 16, **changes: Any
) -> PartitionFiles:
    """The writer of a partition's files in a folder, where the manifest of the flow `f` is."""
    spec = FilesSpec(endpoint="lake", folder=str(folder), format=form, **changes)
    return PartitionFiles("f", spec, where, topic_id, ManifestFolder(str(folder), "f"), 1, MAX_UNPACKED)


def write_batch(files: PartitionFiles, text: bytes, begin: int = 0) -> None:
    """Writes the records of a batch from an offset on."""
    (member,) = sets(text)
    files.write(member, memoryview(text), begin)


def file(first: int, size: int, folder: str = "orders", partition: int = 0, topic_id: str = ONE) -> DataFile:
    return DataFile(
        path=f"{folder}/f-{partition:05d}-{first:020d}-{topic_id[:8]}.log",
        staged="staging/1/x.part",
        topic="orders",
        topic_id=topic_id,
        partition=partition,
        first=first,
        end=first + 1,
        records=1,
        size=size,
        crc32c=0,
    )


def commit_of(number: int, files: Sequence[DataFile] = (), **changes: Any) -> Commit:
    return Commit(
        number=number,
        flow="f",
        owner=OWNER,
        generation=1,
        at_ms=number,
        format="raw",
        files=list(files),
        **changes,
    )


def root_of(folder: ManifestFolder | SnapshotFolder) -> Path:
    """The folder of a local endpoint."""
    assert isinstance(folder.store, LocalFolder)
    return folder.store.folder


def own_of(folder: ManifestFolder) -> Path:
    """The folder of a flow in a local endpoint."""
    return root_of(folder) / folder.own


class WrittenBackup:
    """A backup in a folder, commit by commit."""

    def __init__(self, folder: Path, form: str = "raw", flow: str = "f") -> None:
        self.folder = folder
        self.manifest = ManifestFolder(str(folder), flow)
        self._format, self._flow = form, flow
        self._state = ManifestState()

    def commit(self, at_ms: int, topic_id: str, position: int, *batches: bytes) -> DataFile | None:
        file = self._file(topic_id, position, b"".join(batches)) if batches else None
        self._add(at_ms, topic_id, position, [file] if file is not None else [])
        return file

    def merge(self, *files: DataFile) -> DataFile:
        """Puts one file in the place of these, which are deleted."""
        text = b"".join((self.folder / one.path).read_bytes() for one in files)
        merged = replace(
            files[0],
            path=f"orders/merged-{files[0].first}.log",
            end=files[-1].end,
            records=sum(one.records for one in files),
            size=len(text),
            crc32c=crc32c(text),
        )
        (self.folder / merged.path).write_bytes(text)
        self._add(1, merged.topic_id, merged.end, [merged], [one.path for one in files])
        for one in files:
            (self.folder / one.path).unlink()
        return merged

    def _add(
        self, at_ms: int, topic_id: str, position: int, files: list[DataFile], replaced: Sequence[str] = ()
    ) -> None:
        last = self._state.last
        commit = replace(
            commit_of(last.number + 1 if last is not None else 1, files, replaced=list(replaced)),
            flow=self._flow,
            at_ms=at_ms,
            format=self._format,
            positions=[FilePosition(topic="orders", topic_id=topic_id, partition=0, position=position)],
        )
        self.manifest.add(self._state, commit)

    def _file(self, topic_id: str, end: int, text: bytes) -> DataFile:
        members = [one for one in walk(text, WHERE).sets if isinstance(one, Batch)]
        path = f"orders/f-{members[0].base_offset}-{topic_id[:8]}.log"
        (self.folder / "orders").mkdir(exist_ok=True)
        (self.folder / path).write_bytes(text)
        return replace(
            file(members[0].base_offset, len(text), topic_id=topic_id),
            path=path,
            end=end,
            records=sum(one.records for one in members),
            crc32c=crc32c(text),
            first_timestamp=members[0].base_timestamp,
            last_timestamp=max(one.max_timestamp for one in members),
        )
