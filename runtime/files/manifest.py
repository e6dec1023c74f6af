"""The manifest of a flow in an endpoint's folder: reads commits, adds one, and moves staged files into place.

A commit is added by a hard link to its numbered name, which fails if the name is taken: so of two drivers one
wins, whatever they know of each other (R3). All methods block: the driver calls them in a thread.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from runtime.contract.records import manifest
from runtime.contract.records.manifest import Commit, DataFile, FilePosition, ManifestOwner, UnreadableCommit
from runtime.contract.spec.files import OWN_FOLDER

_LOG, _STAGING, _REPLACED = "log", "staging", "replaced"
_DIGITS: Final = 20
_COMPLETE_EVERY: Final = 64  # commits: so few are read at a start
_WITHOUT_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})


class ManifestProblem(Exception):
    """The manifest can't be used; the text says why and the way out. The flow stops."""


class ManifestTaken(Exception):
    """The number of the commit is taken: the manifest must be read again, or this driver was replaced."""


class EndpointUnavailable(Exception):
    """The folder can't be read or written now; the text says why. A retry may succeed."""


@dataclass(slots=True)
class ManifestState:
    """The state after all commits that were read. `last` is None for a manifest without a commit."""

    last: Commit | None = None
    digest: str = ""
    positions: dict[tuple[str, int], FilePosition] = field(default_factory=dict)

    def apply(self, commit: Commit, digest: str) -> None:
        """Applies the next commit."""
        self.positions |= {one.key: one for one in commit.positions}
        self.last, self.digest = commit, digest


class ManifestFolder:
    """The folder of one flow's manifest below the endpoint's folder, which must exist."""

    def __init__(self, endpoint: str, flow: str) -> None:
        self.endpoint = Path(endpoint)
        self.own = self.endpoint / OWN_FOLDER / flow
        self._log = self.own / _LOG

    def staging(self, generation: int) -> Path:
        """Returns the folder of the files that a generation has not committed yet."""
        return self.own / _STAGING / str(generation)

    def read(self) -> ManifestState:
        """Reads the commits from the newest complete one on. Raises ManifestProblem, EndpointUnavailable."""
        with as_unavailable(self.endpoint):
            if not self.endpoint.is_dir():
                raise EndpointUnavailable(
                    f"the folder {self.endpoint} is not there: create it, or mount it, on every machine of"
                    " the job"
                )
            numbers = self.numbers()
            return self._folded(numbers)

    def check(self, state: ManifestState) -> None:
        """Checks that the last commit is as it was written. Raises ManifestProblem, EndpointUnavailable.

        A folder that was unmounted, mounted empty or edited is noticed before anything is written there.
        """
        if state.last is None:
            return
        path = self._path(state.last.number)
        with as_unavailable(self.endpoint):
            if not path.exists():
                raise EndpointUnavailable(f"{path} is gone: is {self.endpoint} mounted?")
            _, digest = self.commit(state.last.number)
        if digest != state.digest:
            raise ManifestProblem(f"{path} was exchanged: restore the folder")

    def numbers(self) -> list[int]:
        """Returns the numbers of all commits, in order. Raises ManifestProblem where one is missing."""
        try:
            names = [path.name for path in self._log.iterdir()]
        except FileNotFoundError:
            return []
        found = sorted(int(name.removesuffix(".json")) for name in names if _is_commit(name))
        if found != list(range(1, len(found) + 1)):
            missing = next(number for number, one in enumerate(found, 1) if one != number)
            raise ManifestProblem(f"the commit {missing} is missing in {self._log}: restore the folder")
        return found

    def commit(self, number: int) -> tuple[Commit, str]:
        """Returns a commit and its digest. Raises ManifestProblem, OSError."""
        path = self._path(number)
        text = path.read_bytes()
        try:
            found = manifest.decode(text)
        except UnreadableCommit as error:
            raise ManifestProblem(f"{path} can't be read: {error}; restore the folder") from error
        if found.number != number:
            raise ManifestProblem(f"{path} holds the commit {found.number}: restore the folder")
        return found, manifest.digest_of(text)

    def _folded(self, numbers: Sequence[int]) -> ManifestState:
        """Returns the state after the commits, read from the newest complete one on."""
        state = ManifestState()
        for commit, digest in self.since(numbers, lambda commit: commit.complete):
            state.apply(commit, digest)
        return state

    def since(self, numbers: Sequence[int], begins: Callable[[Commit], bool]) -> Iterator[tuple[Commit, str]]:
        """Yields the commits from the newest one that `begins`, or from the first of all, with their digests.

        Raises ManifestProblem where one does not follow the commit before it; OSError.
        """
        first = next((at for at in reversed(range(len(numbers))) if begins(self.commit(numbers[at])[0])), 0)
        before: str | None = None
        for number in numbers[first:]:
            commit, digest = self.commit(number)
            if before is not None and commit.previous != before:
                raise ManifestProblem(
                    f"{self._path(number)} does not follow the commit before it, which was exchanged:"
                    " restore the folder"
                )
            yield commit, digest
            before = digest

    def add(self, state: ManifestState, commit: Commit) -> None:
        """Adds the commit behind `state` and applies it. Raises ManifestTaken, EndpointUnavailable.

        Every some commits have all positions, so that a start reads few of them.
        """
        if commit.number % _COMPLETE_EVERY == 1 or commit.complete:
            moved = {one.key: one for one in commit.positions}
            commit = replace(commit, complete=True, positions=list((state.positions | moved).values()))
        commit = replace(commit, previous=state.digest)
        text = manifest.encode(commit)
        path = self._path(commit.number)
        with as_unavailable(self.endpoint):
            self._log.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.stem}.{commit.generation}.tmp")
            try:
                write_synced(temporary, text)
                link_new(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)
            sync_folder(self._log)
        state.apply(commit, manifest.digest_of(text))

    def publish(self, files: Iterable[DataFile]) -> None:
        """Moves the staged files of a commit to their places; those that are there already stay.

        Raises ManifestProblem for a file that is in neither place, and EndpointUnavailable.
        """
        folders: set[Path] = set()
        with as_unavailable(self.endpoint):
            for one in files:
                target = self.endpoint / one.path
                if target.parent not in folders:
                    self._make_inside(target.parent)
                    folders.add(target.parent)
                try:
                    (self.own / one.staged).replace(target)
                except FileNotFoundError:
                    if not target.exists():
                        raise ManifestProblem(
                            f"{target} is missing, and so is its staged file: restore it from a copy"
                        ) from None
            for folder in folders:
                sync_folder(folder)

    def hide(self, replaced: Iterable[str]) -> None:
        """Moves the files that a commit replaces below the flow's own folder; the merged ones are published.

        It may be repeated. Raises ManifestProblem, EndpointUnavailable.
        """
        folders: set[Path] = set()
        with as_unavailable(self.endpoint):
            for path in replaced:
                here, there = self.endpoint / path, self.own / _REPLACED / path
                if not here.exists():
                    continue  # moved by an earlier driver, and perhaps removed
                if there.parent not in folders:
                    self._make_inside(there.parent)
                os.utime(here)  # its retention begins
                here.replace(there)
                folders |= {here.parent, there.parent}
            for folder in folders:
                sync_folder(folder)

    def place(self, file: DataFile) -> Path:
        """Returns where a file of a commit is now. A file that is nowhere has its own place.

        It is staged until its commit is finished, and a file that was replaced stays for a while.
        """
        own = self.endpoint / file.path
        places = (own, self.own / file.staged, own, self.own / _REPLACED / file.path)
        return next((one for one in places if one.is_file()), own)

    def remove_replaced(self, retention_s: float) -> int:
        """Removes the files that were replaced so long ago, and returns how many. Raises EndpointUnavailable.

        The clock is that of the file system. After a clock jump they are removed early or late: a reader
        that still has their names then gets an error.
        """
        root = self.own / _REPLACED
        removed = 0
        with as_unavailable(self.endpoint):
            if not root.is_dir():
                return 0
            probe = root / ".now"
            probe.touch()
            now = probe.stat().st_mtime
            for folder, _, names in os.walk(root, topdown=False):
                for name in names:
                    path = Path(folder, name)
                    if path != probe and now - path.stat().st_mtime >= retention_s:
                        path.unlink()
                        removed += 1
                if Path(folder) != root and not any(Path(folder).iterdir()):
                    Path(folder).rmdir()
        return removed

    def clear_staging(self) -> None:
        """Removes what is staged and not committed, by a round that failed too. What can't be removed stays.

        The last commit must be published before.
        """
        for folder in (self.own / _STAGING).glob("*"):
            shutil.rmtree(folder, ignore_errors=True)

    def check_staged(self, files: Iterable[DataFile]) -> None:
        """Checks that the driver sees the files that tasks have staged. Raises EndpointUnavailable."""
        with as_unavailable(self.endpoint):
            for one in files:
                path = self.own / one.staged
                size = path.stat().st_size if path.exists() else None
                if size != one.size:
                    what = "is not there" if size is None else f"has {size} bytes in place of {one.size}"
                    raise EndpointUnavailable(
                        f"{path} {what} for the driver: all machines of the job must share {self.endpoint}"
                    )

    def _make_inside(self, folder: Path) -> None:
        """Creates a folder below the endpoint. Raises ManifestProblem where a link leads out of it."""
        folder.mkdir(parents=True, exist_ok=True)
        if not folder.resolve().is_relative_to(self.endpoint.resolve()):
            raise ManifestProblem(
                f"{folder} leads out of {self.endpoint}: remove the symbolic link, no file is written there"
            )
        for one in (folder, *folder.parents):
            sync_folder(one)
            if one == self.endpoint:
                break

    def _path(self, number: int) -> Path:
        return self._log / f"{number:0{_DIGITS}d}.json"


def owner_problem(state: ManifestState, owner: ManifestOwner, endpoint: Path) -> str:
    """Returns why this job may not write the manifest; an empty text where it may."""
    if state.last is None or state.last.owner == owner:
        return ""
    other = state.last.owner
    if other.cluster_id != owner.cluster_id:
        return (
            f"{endpoint} holds files of this flow from the cluster {other.cluster_id}, and its source is"
            f" {owner.cluster_id}: name another folder, or another flow"
        )
    return (
        f"job {other.job} of topology {other.topology} writes this flow's files in {endpoint}: name another"
        " folder or another flow, or give the flow back to that job"
    )


class as_unavailable:  # noqa: N801 - a context manager, named as the functions of contextlib are
    """Converts an OSError into EndpointUnavailable, with the path and the error's own text."""

    def __init__(self, endpoint: Path) -> None:
        self._endpoint = endpoint

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            where = error.filename or self._endpoint
            raise EndpointUnavailable(f"{where}: {error.strerror or error}") from error


def _is_commit(name: str) -> bool:
    stem, _, ending = name.partition(".")
    return ending == "json" and len(stem) == _DIGITS and stem.isdecimal()


def write_synced(path: Path, text: bytes) -> None:
    with path.open("wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def link_new(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise ManifestTaken(str(path)) from None
    except OSError as error:
        if error.errno in _WITHOUT_LINKS:
            raise EndpointUnavailable(
                f"the file system of {path.parent} has no hard links ({error.strerror}), without which two"
                " drivers could write the same commit: use another file system"
            ) from error
        raise


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
