"""An endpoint with the files of a flow, round by round: in a folder, or in a store."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from runtime.batch import Record
from runtime.batch.spec import MAX_UNPACKED
from runtime.contract.records.manifest import Commit, FilePosition
from runtime.contract.spec.files import CompactionSpec, FilesSpec
from runtime.driver.application import RoundWork
from runtime.driver.duties.compaction import CompactionDuty
from runtime.files.backup import BackedUpRecords, check_file, read_backup
from runtime.files.compaction import MergedFiles, compact
from runtime.files.formats import PartitionFiles
from runtime.files.manifest import ManifestFolder, ManifestState
from tests.runtime.batch.forge import batch_bytes
from tests.runtime.files.backups import ONE, WHERE, Place, commit_of, write_batch

NOON = 1_700_049_600_000


class Lake:
    """A place of an endpoint with real files of one partition, a commit for each round."""

    def __init__(
        self, place: Path | Place, form: Any = "raw", layout: str = "{topic}/", every_ms: int = 100
    ) -> None:
        if isinstance(place, Path):
            place.mkdir(exist_ok=True)
        folder, client = (str(place), {}) if isinstance(place, Path) else place
        self.spec = FilesSpec(
            endpoint="lake",
            folder=folder,
            client=client,
            format=form,
            layout=layout,
            compact=CompactionSpec(every_ms=every_ms, below_bytes=1 << 20, retention_ms=100),
        )
        self.folder = ManifestFolder(folder, "f", client)
        self.state = ManifestState()
        self.offset = 0
        self.duty = CompactionDuty("f", self.spec, self.folder)

    def next(self) -> Commit:
        number = self.state.last.number + 1 if self.state.last is not None else 1
        return replace(commit_of(number), format=self.spec.format)

    @property
    def last(self) -> Commit:
        assert self.state.last is not None
        return self.state.last

    def round(self, *timestamps: int, begin: int | None = None, values: pa.DataType | None = None) -> None:
        """Writes the records of a round, and publishes its files."""
        self.folder.publish(self.commit(*timestamps, begin=begin, values=values).files)

    def commit(self, *timestamps: int, begin: int | None = None, values: pa.DataType | None = None) -> Commit:
        """Commits the records of a round; with `begin` the batch holds earlier records too.

        With the type `values` they have no value, as if a transform had decoded it to a struct of that type.
        """
        given = [
            Record(self.offset + at, stamp, b"k", f"v{self.offset + at}".encode(), (("h", None),))
            for at, stamp in enumerate(timestamps)
        ]
        begin = self.offset if begin is None else begin
        text = batch_bytes(given)
        files = PartitionFiles("f", self.spec, WHERE, ONE, self.folder, 1, MAX_UNPACKED)
        if values is not None:
            files.write_rows([(one, 0) for one in given], pa.nulls(len(given), values))
        else:
            write_batch(files, text, begin)
        self.offset += len(given)
        position = FilePosition(topic="orders", topic_id=ONE, partition=0, position=self.offset)
        commit = replace(self.next(), files=files.finish(), positions=[position])
        self.folder.check_staged(commit.files)
        self.folder.add(self.state, commit)
        self.duty.apply(commit)
        return commit

    def staged(self) -> list[MergedFiles]:
        return asyncio.run(self.duty.stage(1, 2, in_this_process))

    def merge(self) -> None:
        if merged := self.staged():
            asyncio.run(self.duty.commit(self.state, self.next(), merged))

    def seen_by_the_manifest(self) -> list[int]:
        """The offsets in the files of the manifest, each file checked as a restore does."""
        backup = read_backup(self.spec.folder, "f", client=self.spec.client)
        files = backup.topics()["orders"].files[0]
        paths = [(one, check_file(self.folder, one)) for one in files]
        return offsets_in(BackedUpRecords(paths, WHERE))


async def in_this_process(_work: RoundWork, tickets: Sequence[bytes]) -> list[bytes]:
    return await asyncio.to_thread(lambda: list(compact(tickets)))


def offsets_in(records: BackedUpRecords) -> list[int]:
    found = []
    while (one := records.pop()) is not None:
        found.append(one[0])
    return found
