"""Writes checkpoints of a manifest: what all commits up to one say, so that readers begin there.

A checkpoint names lists of files, which never change: a new one names the lists of the one before it again,
and only those that a merge has touched, or that were not full, are written anew. So its costs follow what is
new, not the age of the manifest. A commit names the checkpoint by its digest, as it names the commit before
it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath
from typing import Final

from runtime.contract.records.manifest import (
    CheckpointRef,
    CheckpointTopic,
    Commit,
    DataFile,
    FileList,
    FileListRef,
    ManifestCheckpoint,
)
from runtime.files.backup import Backup
from runtime.files.manifest import ManifestFolder, ManifestProblem, ManifestState, as_unavailable

LIST_FILES: Final = 4_096  # of one list

_Begin = tuple[str, str, int, str, int]  # topic, its id, partition, folder, first offset


class CurrentFiles:
    """The files after some commits, in the order in which they were committed.

    A merged file has the place of the first one that it replaces. A list of the checkpoint before is read
    only where it has to change.
    """

    def __init__(self, folder: ManifestFolder, lists: Iterable[FileListRef]) -> None:
        self._folder = folder
        self._lists = list(lists)
        self._files: dict[int, DataFile] = {}  # by place
        self._places: dict[str, list[int]] = {}  # by path; after a rewind of the source, two may have one
        self._first = self._next = 0

    def apply(self, commit: Commit) -> None:
        """Applies the next commit. Raises ManifestProblem, OSError."""
        merged = {_begin(file): file for file in commit.files} if commit.replaced else {}
        for path in commit.replaced:
            while path not in self._places and self._lists:
                self._read_last_list()
            if (places := self._places.pop(path, None)) is None:
                raise ManifestProblem(f"the commit {commit.number} replaces {path}, which no commit names")
            for place in sorted(places):
                replaced = self._files.pop(place)
                if (file := merged.pop(_begin(replaced), None)) is not None:
                    self._add(file, place)
        if merged:
            path = next(iter(merged.values())).path
            raise ManifestProblem(f"the commit {commit.number} merges no file into {path}")
        for file in () if commit.replaced else commit.files:
            self._add(file, self._next)
            self._next += 1

    def store(self, flow: str) -> list[FileListRef]:
        """Writes the lists that have changed, and returns all. Raises ManifestProblem, OSError."""
        if self._files and self._lists and self._lists[-1].files < LIST_FILES:
            self._read_last_list()
        files = [self._files[place] for place in sorted(self._files)]
        new = [
            self._folder.add_list(FileList(flow=flow, files=files[at : at + LIST_FILES]))
            for at in range(0, len(files), LIST_FILES)
        ]
        return [*self._lists, *new]

    def _read_last_list(self) -> None:
        files = self._folder.listed_files(self._lists.pop())
        self._first -= len(files)
        for place, file in enumerate(files, self._first):
            self._add(file, place)

    def _add(self, file: DataFile, place: int) -> None:
        self._files[place] = file
        self._places.setdefault(file.path, []).append(place)


def _begin(file: DataFile) -> _Begin:
    return file.topic, file.topic_id, file.partition, str(PurePath(file.path).parent), file.first


def write_checkpoint(folder: ManifestFolder, state: ManifestState) -> CheckpointRef:
    """Writes the checkpoint of the state after all commits. It counts when a commit names it.

    It reads the checkpoint before it and the commits since then. Raises ManifestProblem, EndpointUnavailable.
    """
    last = state.last
    assert last is not None, "there is no commit"
    with as_unavailable(folder.store):
        before, numbers = folder.base(last.number)
        backup = Backup(last.flow)
        files = CurrentFiles(folder, before.lists if before is not None else ())
        if before is not None:
            backup.begin(before)
        for commit, digest in folder.chained(
            [number for number in numbers if number <= last.number], backup.digest
        ):
            backup.take(commit, digest)
            files.apply(commit)
        if backup.digest != state.digest:
            raise ManifestProblem(f"the commit {last.number} was exchanged: restore the folder")
        return folder.add_checkpoint(
            ManifestCheckpoint(
                flow=last.flow,
                number=last.number,
                commit=state.digest,
                at_ms=last.at_ms,
                owner=last.owner,
                format=last.format,
                topics=[
                    CheckpointTopic(
                        name=lineage.name,
                        ids=lineage.ids,
                        since_ms=lineage.since_ms,
                        begins=lineage.begins,
                        positions=list(lineage.positions.values()),
                    )
                    for lineages in backup.lineages.values()
                    for lineage in lineages
                ],
                lists=files.store(last.flow),
            )
        )
