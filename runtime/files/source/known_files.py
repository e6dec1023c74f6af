"""The files that a look found, those that were read before, and what became of the latter.

A file is known by its name, the position behind the last record that was read, and a fingerprint: a digest of
bytes before that position. A file whose bytes before the position have changed is another file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from runtime.contract.records.job_status import Finding
from runtime.contract.records.ledger import Progress

Fingerprint: TypeAlias = bytes  # of what was read of a file
NO_FINGERPRINT: Final = b""  # of a file of which nothing was read
HIDDEN: Final = (".", "_")  # beginnings of names that are not read, as readers of Hadoop's folders have it
PACKED: Final = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip", ".snappy")  # ends of names that are not read


class FileState(NamedTuple):
    """The size of a file, the number by which it is recognised, and when it was written last.

    The size is in the unit of positions: bytes of lines, rows of Parquet. The number is the inode in a
    folder, which a rename keeps. In a bucket it stands for the key and for `version`, the size and the ETag.
    """

    size: int
    identity: int
    modified_ns: int = 0
    version: str = ""


class KnownFile(NamedTuple):
    """A file that was read up to `position`.

    In the ledger, its fingerprint stands in the place of the source topic's id, and its identity in that of
    the source epoch.
    """

    name: str
    position: int
    fingerprint: bytes
    identity: int

    @classmethod
    def of(cls, name: str, progress: Progress) -> KnownFile:
        """Returns a file as the ledger knows it."""
        return cls(name, progress.position, progress.source_topic_id, progress.source_epoch)

    def into(self, progress: Progress) -> Progress:
        """Returns a progress by which the ledger recognises this file."""
        return replace(progress, source_topic_id=self.fingerprint, source_epoch=self.identity)


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a source. `ignored` counts the entries that are not read, by the reason.

    `problems` says why nothing of a file can be read now. An incomplete file is no lag, as an incomplete
    line: its state is CAUGHT_UP.
    """

    files: Mapping[str, FileState] = field(default_factory=dict)
    ignored: Mapping[str, int] = field(default_factory=dict)
    problems: Mapping[str, Finding] = field(default_factory=dict)


@dataclass(slots=True)
class Reconciliation:
    """What became of the known files, and the names of the files that are new.

    `moved` are known files with their new names. `replaced` names hold another file than before, and
    `vanished` names hold none; the known file is nowhere.
    """

    moved: list[tuple[KnownFile, str]] = field(default_factory=list)
    replaced: list[KnownFile] = field(default_factory=list)
    vanished: list[KnownFile] = field(default_factory=list)
    new: list[str] = field(default_factory=list)


def reconcile(
    files: Mapping[str, FileState],
    known_files: Mapping[str, KnownFile],
    holds: Callable[[str, KnownFile], bool],
) -> Reconciliation:
    """Compares the files of a source with the known ones. `holds` says whether a name has a file's bytes.

    A known file moved where another name has its identity and its bytes: bytes alone may be alike, as headers
    are, and a file system gives the inode of a deleted file to another one. A copy is a new file; a second
    link to a file that is read is none.
    """
    reconciliation = Reconciliation()
    displaced = [file for name, file in known_files.items() if name not in files or not holds(name, file)]
    gone = {file.name for file in displaced}
    free = {name for name in files if name not in known_files or name in gone}
    places: dict[int, list[str]] = {}  # by the identity of the file there
    for name in sorted(free, reverse=True):
        places.setdefault(files[name].identity, []).append(name)
    for file in sorted(displaced):
        place = next((name for name in reversed(places.get(file.identity, ())) if holds(name, file)), None)
        if place is not None:
            reconciliation.moved.append((file, place))
            free.remove(place)
            places[file.identity].remove(place)
        elif file.name in files:
            reconciliation.replaced.append(file)
        else:
            reconciliation.vanished.append(file)
    taken = {file.name for file in reconciliation.replaced}
    linked = {files[name].identity for name in known_files if name in files and name not in gone}
    linked |= {files[name].identity for _, name in reconciliation.moved}
    reconciliation.new = sorted(
        name for name in free if name not in taken and files[name].identity not in linked
    )
    return reconciliation


def partition_for(name: str, partitions: int) -> int:
    """Returns the partition that takes the lines of a file, so that they keep their order."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest()) % partitions
