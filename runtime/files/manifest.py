"""The manifest of a flow in an endpoint's folder: reads commits, adds one, and moves staged files into place.

A commit is added under its numbered name only if the name is free, by a hard link or a conditional put: so of
two drivers one wins, whatever they know of each other (R3). All methods block: the driver calls them in a
thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, TypeVar

from msgspec.structs import replace

from runtime.contract.client.stores import Setting
from runtime.contract.records import manifest
from runtime.contract.records.manifest import (
    CheckpointRef,
    Commit,
    DataFile,
    FileList,
    FileListRef,
    FilePosition,
    ManifestCheckpoint,
    ManifestOwner,
    UnreadableCommit,
)
from runtime.contract.records.record_values import MAX_TEXT_BYTES
from runtime.contract.spec.files import OWN_FOLDER, STAGING_FOLDER
from runtime.files.open_store import opened
from runtime.files.store import FileStore, LeadsOutside, NameTaken, StoredFile

_LOG, _STAGING, _REPLACED = "log", STAGING_FOLDER, "replaced"
_CHECKPOINTS, _LISTS = "checkpoints", "lists"
_DIGITS: Final = 20
_COMMIT: Final = re.compile(rf"[0-9]{{{_DIGITS}}}\.json")
_CHECKPOINT: Final = re.compile(rf"[0-9]{{{_DIGITS}}}-[^-.]{{{_DIGITS}}}\.json")
_READ_AT_ONCE: Final = 64  # commits
_COMPLETE_EVERY: Final = 64  # commits: so few are read at a start
COMMIT_FILES: Final = 16_384  # of a commit, and those of one partition: it can be read again
_Part = TypeVar("_Part")


class ManifestProblem(Exception):
    """The manifest can't be used; the text says why and the way out. The flow stops."""


class ManifestTaken(Exception):
    """The number of the commit is taken: the manifest must be read again, or this driver was replaced."""


class EndpointUnavailable(Exception):
    """The folder or the store can't be read or written now; the text says why. A retry may succeed."""


@dataclass(slots=True)
class ManifestState:
    """The state after all commits that were read. `last` is None for a manifest without a commit."""

    last: Commit | None = None
    digest: str = ""
    positions: dict[tuple[str, int], FilePosition] = field(default_factory=dict)

    def apply(self, commit: Commit, digest: str) -> None:
        """Applies the next commit."""
        self.positions |= {position.key: position for position in commit.positions}
        self.last, self.digest = commit, digest

    @property
    def checkpoint(self) -> CheckpointRef | None:
        """The newest checkpoint."""
        return self.last.checkpoint if self.last is not None else None


class ManifestFolder:
    """The folder of one flow's manifest below the endpoint's folder, which must exist."""

    def __init__(self, endpoint: str, flow: str, client: Mapping[str, Setting] | None = None) -> None:
        self.store = opened(endpoint, client)
        self.flow = flow
        self.own = f"{OWN_FOLDER}/{flow}"
        self._log = f"{self.own}/{_LOG}"

    def staging(self, generation: int) -> str:
        """Returns the folder of the files that a generation has not committed yet."""
        return f"{self.own}/{_STAGING}/{generation}"

    def check_exclusive(self) -> None:
        """Checks that of two commits with one number one is refused. Raises EndpointUnavailable."""
        with as_unavailable(self.store):
            self.store.check_exclusive(f"{self.own}/{_STAGING}/probe")

    def read(self) -> ManifestState:
        """Reads the commits from the newest complete one on. Raises ManifestProblem, EndpointUnavailable."""
        with as_unavailable(self.store):
            self.store.check()
            return self._folded(self.numbers())

    def check(self, state: ManifestState) -> None:
        """Checks that the last commit is as it was written. Raises ManifestProblem, EndpointUnavailable.

        A folder that was unmounted, mounted empty or edited is noticed before anything is written there.
        """
        if state.last is None:
            return
        path = self._path(state.last.number)
        with as_unavailable(self.store):
            try:
                _, digest = self.commit(state.last.number)
            except FileNotFoundError:
                raise EndpointUnavailable(f"{path} is gone: is {self.store.address} mounted?") from None
        if digest != state.digest:
            raise ManifestProblem(f"{path} was exchanged: restore the folder")

    def numbers(self, first: int | None = None) -> list[int]:
        """Returns the numbers of the commits from `first` on, in order; without it, those from the newest
        checkpoint's commit on.

        Raises ManifestProblem where one is missing; OSError.
        """
        if first is None:
            first = max((number for number, _ in self._checkpoints()), default=1)
        numbers = self._listed(first)
        if _gap(numbers, first) is not None:
            numbers = self._listed(first)  # commits that were added during a look may be seen out of order
        if (missing := _gap(numbers, first)) is not None:
            raise ManifestProblem(
                f"the commit {missing} is missing in {self.store.path(self._log)}: restore the folder"
            )
        return numbers

    def _listed(self, first: int) -> list[int]:
        names = self.store.names(self._log, f"{first - 1:0{_DIGITS}d}.json" if first > 1 else "")
        return sorted(int(name.removesuffix(".json")) for name in names if _COMMIT.fullmatch(name))

    def _checkpoints(self) -> list[tuple[int, str]]:
        """Returns the numbers and the names of the checkpoints that are there, in order. Raises OSError."""
        folder = f"{self.own}/{_CHECKPOINTS}"
        names = (name for name in self.store.names(folder) if _CHECKPOINT.fullmatch(name))
        return sorted((int(name.partition("-")[0]), f"{folder}/{name}") for name in names)

    def base(self, last: int | None = None) -> tuple[ManifestCheckpoint | None, list[int]]:
        """Returns the checkpoint that the commit `last` names, and the numbers of all commits behind it.

        Without `last`, it is that of the newest commit. A checkpoint that is gone is not needed where all
        commits are there. Raises ManifestProblem, OSError.
        """
        numbers = self.numbers()
        if not numbers:
            return None, numbers
        ref = self.commit(numbers[-1] if last is None else last)[0].checkpoint
        if ref is not None and (checkpoint := self._whole_checkpoint(ref)) is not None:
            return checkpoint, self.numbers(ref.number + 1)
        return None, self.numbers(1)

    def _whole_checkpoint(self, ref: CheckpointRef) -> ManifestCheckpoint | None:
        """Returns a checkpoint; None where it or a list of it is gone. Raises ManifestProblem, OSError."""
        try:
            checkpoint = self.checkpoint(ref)
        except FileNotFoundError:
            return None
        sizes = self.store.sizes([self._list_name(file_list.digest) for file_list in checkpoint.lists])
        return checkpoint if None not in sizes else None

    def checkpoint(self, ref: CheckpointRef) -> ManifestCheckpoint:
        """Returns the checkpoint that a commit names. Raises ManifestProblem, OSError."""
        name = self._checkpoint_name(ref)
        text = self.store.read(name)
        checkpoint = self._decoded_part(name, text, manifest.decode_checkpoint)
        if (checkpoint.number, checkpoint.flow, manifest.digest_of(text)) != (
            ref.number,
            self.flow,
            ref.digest,
        ):
            raise self._unreadable(name, "it was exchanged")
        return checkpoint

    def listed_files(self, ref: FileListRef) -> list[DataFile]:
        """Returns the files of a list. Raises ManifestProblem, OSError."""
        name = self._list_name(ref.digest)
        text = self.store.read(name)
        listed = self._decoded_part(name, text, manifest.decode_list)
        if (listed.flow, manifest.digest_of(text)) != (self.flow, ref.digest):
            raise self._unreadable(name, "it was exchanged")
        return listed.files

    def _decoded_part(self, name: str, text: bytes, decode: Callable[[bytes], _Part]) -> _Part:
        """Decodes a checkpoint, or a list of one. Raises ManifestProblem."""
        try:
            return decode(text)
        except UnreadableCommit as error:
            raise self._unreadable(name, str(error)) from error

    def _unreadable(self, name: str, why: str) -> ManifestProblem:
        return ManifestProblem(
            f"{self.store.path(name)} can't be read: {why}; restore the folder, or remove this file if all"
            " commits since the first are there"
        )

    def add_list(self, files: FileList) -> FileListRef:
        """Writes a list of files, and returns its name. Raises OSError."""
        text = manifest.encode(files)
        ref = FileListRef(digest=manifest.digest_of(text), files=len(files.files))
        with suppress(NameTaken):  # its name is that of its content
            self.store.add(self._list_name(ref.digest), text)
        return ref

    def add_checkpoint(self, checkpoint: ManifestCheckpoint) -> CheckpointRef:
        """Writes a checkpoint, whose lists are there, and names it. Raises ManifestProblem, OSError."""
        text = self._encoded(f"{_CHECKPOINTS} of {checkpoint.number}", checkpoint)
        ref = CheckpointRef(number=checkpoint.number, digest=manifest.digest_of(text))
        with suppress(NameTaken):
            self.store.add(self._checkpoint_name(ref), text)
        return ref

    def remove_checkpoints(self, age_s: float) -> int:
        """Removes older checkpoints than the newest two, and lists that none names. Returns how many files.

        Those that are younger than `age_s` by the store's clock stay: someone may be reading them. Commits
        stay. Raises ManifestProblem, EndpointUnavailable.
        """
        with as_unavailable(self.store):
            newest = [name for _, name in self._checkpoints()[-2:]]
            removed = self.store.remove_older(f"{self.own}/{_CHECKPOINTS}", age_s, newest)
            named: set[str] = set()
            names = [name for _, name in self._checkpoints()]
            for name, text in zip(names, self.store.read_all(names), strict=True):
                lists = self._decoded_part(name, text, manifest.decode_checkpoint).lists
                named |= {self._list_name(ref.digest) for ref in lists}
            return removed + self.store.remove_older(f"{self.own}/{_LISTS}", age_s, named)

    def commit(self, number: int) -> tuple[Commit, str]:
        """Returns a commit and its digest. Raises ManifestProblem, OSError."""
        return self._decoded(number, self.store.read(self._name(number)))

    def commits(self, numbers: Sequence[int]) -> Iterator[tuple[Commit, str]]:
        """Yields commits with their digests, some read at a time. Raises ManifestProblem, OSError."""
        for at in range(0, len(numbers), _READ_AT_ONCE):
            some = numbers[at : at + _READ_AT_ONCE]
            texts = self.store.read_all([self._name(number) for number in some])
            yield from map(self._decoded, some, texts)

    def _decoded(self, number: int, text: bytes) -> tuple[Commit, str]:
        path = self._path(number)
        try:
            commit = manifest.decode(text)
        except UnreadableCommit as error:
            raise ManifestProblem(f"{path} can't be read: {error}; restore the folder") from error
        if commit.number != number:
            raise ManifestProblem(f"{path} holds the commit {commit.number}: restore the folder")
        if commit.flow != self.flow:
            raise ManifestProblem(f"{path} is a commit of {commit.flow}: restore the folder")
        return commit, manifest.digest_of(text)

    def _folded(self, numbers: Sequence[int]) -> ManifestState:
        """Returns the state after the commits, read from the newest complete one on."""
        state = ManifestState()
        if not numbers:
            return state
        commits = self.since(numbers, lambda commit: commit.complete)
        if commits is None and numbers[0] > 1:  # the commit behind the newest checkpoint was not written
            before = self.commit(numbers[0])[0].checkpoint
            return self._folded(self.numbers(before.number + 1 if before is not None else 1))
        for commit, digest in commits or self.chained(numbers):
            state.apply(commit, digest)
        return state

    def since(
        self, numbers: Sequence[int], begins: Callable[[Commit], bool]
    ) -> Iterator[tuple[Commit, str]] | None:
        """Yields the commits from the newest one that `begins`, with their digests.

        Returns None where none does. Raises ManifestProblem where one does not follow the commit before it;
        OSError.
        """
        newest_first = reversed(range(len(numbers)))
        first = next((at for at in newest_first if begins(self.commit(numbers[at])[0])), None)
        return None if first is None else self.chained(numbers[first:])

    def chained(self, numbers: Sequence[int], before: str | None = None) -> Iterator[tuple[Commit, str]]:
        """Yields commits with their digests. `before` is the digest of the commit before them.

        Raises ManifestProblem where one does not follow the commit before it; OSError.
        """
        for commit, digest in self.commits(numbers):
            if before is not None and commit.previous != before:
                raise ManifestProblem(
                    f"{self._path(commit.number)} does not follow the commit before it, which was exchanged:"
                    " restore the folder"
                )
            yield commit, digest
            before = digest

    def add(self, state: ManifestState, commit: Commit) -> None:
        """Adds the commit behind `state` and applies it.

        Every some commits have all positions, so that a start reads few of them. Raises ManifestTaken,
        EndpointUnavailable, and ManifestProblem for a commit that could not be read again.
        """
        if commit.number % _COMPLETE_EVERY == 1 or commit.complete:
            moved = {position.key: position for position in commit.positions}
            commit = replace(commit, complete=True, positions=list((state.positions | moved).values()))
        commit = replace(commit, previous=state.digest, checkpoint=commit.checkpoint or state.checkpoint)
        text = self._encoded(self._name(commit.number), commit)
        with as_unavailable(self.store):
            self.store.add(self._name(commit.number), text)
        state.apply(commit, manifest.digest_of(text))

    def publish(self, files: Iterable[DataFile]) -> None:
        """Moves the staged files of a commit to their places; those that are there already stay.

        Raises ManifestProblem for a file that is in neither place, and EndpointUnavailable.
        """
        with as_unavailable(self.store):
            missing = self.store.move([(self.staged(file), file.path) for file in files])
            for path, size in zip(missing, self.store.sizes(missing), strict=True):
                if size is None:
                    raise ManifestProblem(
                        f"{self.store.path(path)} is missing, and so is its staged file: restore it from a"
                        " copy"
                    )

    def hide(self, replaced: Iterable[str]) -> None:
        """Moves the files that a commit replaces below the flow's own folder; the merged ones are published.

        It may be repeated: a file that is not there was moved by an earlier driver, and perhaps removed.
        Raises ManifestProblem, EndpointUnavailable.
        """
        with as_unavailable(self.store):
            self.store.move([(path, f"{self.own}/{_REPLACED}/{path}") for path in replaced])

    def place(self, file: DataFile) -> StoredFile:
        """Returns where a file of a commit is now. A file that is nowhere has its own place.

        It is staged until its commit is finished, and a file that was replaced stays for a while.
        """
        published = file.path
        for name in (published, self.staged(file), published, f"{self.own}/{_REPLACED}/{file.path}"):
            if self.store.sizes([name])[0] is not None:
                return self.store.file(name)
        return self.store.file(published)

    def staged(self, file: DataFile) -> str:
        """Returns the name of a file before its commit is finished."""
        return f"{self.own}/{file.staged}"

    def remove_replaced(self, retention_s: float) -> int:
        """Removes the files that were replaced so long ago, and returns how many. Raises EndpointUnavailable.

        The clock is that of the store. After a clock jump they are removed early or late: a reader that still
        has their names then gets an error.
        """
        with as_unavailable(self.store):
            return self.store.remove_older(f"{self.own}/{_REPLACED}", retention_s)

    def clear_staging(self, generation: int) -> None:
        """Removes what this generation and those before it have staged and not committed, also in a round
        that failed. What can't be removed stays.

        The last commit must be published before. Files of a later generation stay: its driver may have
        committed them, and not yet moved them (R3). Raises ManifestProblem.
        """
        with as_unavailable(self.store):
            try:
                names = self.store.names(f"{self.own}/{_STAGING}")
            except OSError:
                return  # the next round finds the same, and says why
            for name in names:
                if not name.isdecimal() or int(name) <= generation:
                    self.store.remove_folder(f"{self.own}/{_STAGING}/{name}")

    def check_staged(self, files: Iterable[DataFile]) -> None:
        """Checks that the driver sees the files that tasks have staged. Raises EndpointUnavailable."""
        wanted = list(files)
        with as_unavailable(self.store):
            sizes = self.store.sizes([self.staged(file) for file in wanted])
        for file, size in zip(wanted, sizes, strict=True):
            if size != file.size:
                what = "is not there" if size is None else f"has {size} bytes in place of {file.size}"
                raise EndpointUnavailable(
                    f"{self.store.path(self.staged(file))} {what} for the driver: all machines of the job"
                    f" must share {self.store.address}"
                )

    def _encoded(self, name: str, value: Commit | ManifestCheckpoint) -> bytes:
        """Encodes what can be read again. Raises ManifestProblem where it is too long for that."""
        text = manifest.encode(value)
        if len(text) > MAX_TEXT_BYTES:
            raise ManifestProblem(
                f"{self.store.path(name)} would have {len(text):,} bytes, and at most {MAX_TEXT_BYTES:,} are"
                " read: split the flow, so that each part has fewer partitions or files"
            )
        return text

    def _name(self, number: int) -> str:
        return f"{self._log}/{number:0{_DIGITS}d}.json"

    def _checkpoint_name(self, ref: CheckpointRef) -> str:
        return f"{self.own}/{_CHECKPOINTS}/{ref.number:0{_DIGITS}d}-{ref.digest[:_DIGITS]}.json"

    def _list_name(self, digest: str) -> str:
        return f"{self.own}/{_LISTS}/{digest}.json"

    def _path(self, number: int) -> str:
        """Returns where a commit is, for people."""
        return self.store.path(self._name(number))


def owner_problem(state: ManifestState, owner: ManifestOwner, endpoint: str) -> str:
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


@contextmanager
def as_unavailable(store: FileStore) -> Iterator[None]:
    """Converts the errors of a store: OSError into EndpointUnavailable, with the path and its own text; what
    could lead out of the endpoint into ManifestProblem, a name that is taken into ManifestTaken.
    """
    try:
        yield
    except NameTaken as error:
        raise ManifestTaken(str(error)) from None
    except LeadsOutside as error:
        raise ManifestProblem(str(error)) from None
    except OSError as error:
        where = error.filename or store.address
        raise EndpointUnavailable(f"{where}: {error.strerror or error}") from error


def _gap(numbers: Sequence[int], first: int) -> int | None:
    """Returns the first number that is missing; None where each follows the one before it."""
    if first > 1 and not numbers:
        return first
    return next((expected for expected, number in enumerate(numbers, first) if number != expected), None)
