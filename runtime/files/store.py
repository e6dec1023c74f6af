"""Where the files of an endpoint are: a folder of this machine, or an object store.

Names are relative to the endpoint, with `/` between their parts. All methods block, and raise OSError with a
text for people: a missing file is a FileNotFoundError. A file appears under its name whole or not at all.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from runtime.contract.client.stores import Setting, is_store

_BUFFER: Final = 1 << 20
_WITHOUT_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})


class NameTaken(Exception):
    """A file of this name is there already."""


class NotExclusive(OSError):
    """The store can't create a file only where there is none, so two drivers could write one commit."""


class LeadsOutside(Exception):
    """A symbolic link leads out of the endpoint's folder; the text names it."""


class Upload(Protocol):
    """A file that is being written, and that nothing reads before it is closed."""

    def write(self, text: bytes | memoryview, /) -> object: ...

    def close(self) -> None:
        """Completes the file, and makes it durable."""

    def discard(self) -> None:
        """Gives the file up. What can't be removed stays under its staged name."""


class FileStore(ABC):
    """The files of one endpoint."""

    address: str  # for people

    @abstractmethod
    def check(self) -> None:
        """Raises OSError where the folder or the bucket is not there, or can't be read."""

    @abstractmethod
    def check_exclusive(self, probe: str) -> None:
        """Raises NotExclusive where `add` could replace a file. `probe` is a folder to try it in."""

    @abstractmethod
    def names(self, folder: str, after: str = "") -> list[str]:
        """Returns the names directly in a folder, of files and folders alike; none where it is not there.

        With `after`, for a folder without folders: the names behind that one, in the order of their bytes.
        """

    @abstractmethod
    def read(self, name: str) -> bytes: ...

    def read_all(self, names: Sequence[str]) -> list[bytes]:
        """Returns the content of several files."""
        return [self.read(name) for name in names]

    @abstractmethod
    def open(self, name: str) -> BinaryIO:
        """Opens a file for reading; it can seek."""

    @abstractmethod
    def sizes(self, names: Sequence[str]) -> list[int | None]:
        """Returns the size of each file, None where there is none."""

    @abstractmethod
    def add(self, name: str, text: bytes) -> None:
        """Writes a file durably if there is none of its name. Raises NameTaken.

        After any other error the file may be there, whole.
        """

    @abstractmethod
    def upload(self, name: str) -> Upload:
        """Begins a file, in a folder that nothing reads before its upload is closed."""

    @abstractmethod
    def move(self, moves: Sequence[tuple[str, str]]) -> list[str]:
        """Moves files to their new names durably, and returns the new names of those that were not there.

        A move that was interrupted may be repeated. The age of a moved file begins anew.
        """

    @abstractmethod
    def remove(self, names: Iterable[str]) -> None:
        """Removes files; those that are not there stay so."""

    @abstractmethod
    def remove_older(self, folder: str, age_s: float, keep: Collection[str] = ()) -> int:
        """Removes the files below a folder that are older, by the store's own clock. Returns how many.

        Those whose names are in `keep` stay.
        """

    @abstractmethod
    def remove_folder(self, folder: str) -> None:
        """Removes all files below a folder. What can't be removed stays."""

    def path(self, name: str) -> str:
        """Returns a name as people find it."""
        return f"{self.address}/{name}"

    def file(self, name: str) -> StoredFile:
        return StoredFile(self, name)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of an endpoint."""

    store: FileStore
    name: str

    def open(self) -> BinaryIO:
        return self.store.open(self.name)

    def __str__(self) -> str:
        return self.store.path(self.name)


class RangeReader(io.RawIOBase):
    """Reads ranges of an object. `read` returns the bytes of a range, by its start and its length."""

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        super().__init__()
        self._read_range, self._size = read, size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(base + offset, 0)
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        length = min(len(view), self._size - self._position)
        if length <= 0:
            return 0
        text = self._read_range(self._position, length)
        view[: len(text)] = text
        self._position += len(text)
        return len(text)


def opened(address: str, client: Mapping[str, Setting] | None = None) -> FileStore:
    """Returns the store of an endpoint. It connects where it is first used."""
    if is_store(address):
        from runtime.files.object_store import ObjectStore

        return ObjectStore(address, client or {})
    return LocalFolder(address)


class LocalFolder(FileStore):
    """A folder that every machine of the job sees under one path."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.address = str(self.folder)
        self._inside: set[Path] = set()

    def check(self) -> None:
        if not self.folder.is_dir():
            raise FileNotFoundError(
                errno.ENOENT,
                "the folder is not there: create it, or mount it, on every machine",
                self.address,
            )

    def check_exclusive(self, probe: str) -> None:
        """A hard link fails where the name is taken; one that can't be made says so when it is needed."""

    def names(self, folder: str, after: str = "") -> list[str]:
        try:
            return [path.name for path in (self.folder / folder).iterdir() if path.name > after]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def open(self, name: str) -> BinaryIO:
        path = self.folder / name
        if not path.resolve().is_relative_to(self.folder.resolve()):
            raise LeadsOutside(f"{path} leads out of {self.folder}")
        return path.open("rb")

    def sizes(self, names: Sequence[str]) -> list[int | None]:
        paths = [self.folder / name for name in names]
        return [path.stat().st_size if path.is_file() else None for path in paths]

    def add(self, name: str, text: bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        try:
            write_synced(temporary, text)
            _link_new(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(path.parent)

    def upload(self, name: str) -> Upload:
        return LocalUpload(self.folder / name)

    def move(self, moves: Sequence[tuple[str, str]]) -> list[str]:
        folders: set[Path] = set()
        missing: list[str] = []
        for old, new in moves:
            source, target = self.folder / old, self.folder / new
            if target.parent not in folders:
                self._make_inside(target.parent)
            try:
                os.utime(source)
                source.replace(target)
            except FileNotFoundError:
                missing.append(new)
            folders |= {source.parent, target.parent}
        for folder in folders:
            if folder.is_dir():
                sync_folder(folder)
        return missing

    def remove(self, names: Iterable[str]) -> None:
        folders = set()
        for name in names:
            path = self.folder / name
            path.unlink(missing_ok=True)
            folders.add(path.parent)
        for folder in folders:
            sync_folder(folder)

    def remove_older(self, folder: str, age_s: float, keep: Collection[str] = ()) -> int:
        root = self.folder / folder
        if not root.is_dir():
            return 0
        probe = root / ".now"
        probe.touch()
        now = probe.stat().st_mtime
        removed = 0
        for below, _, names in os.walk(root, topdown=False):
            for name in names:
                path = Path(below, name)
                if path != probe and self._name(path) in keep:
                    continue
                if path != probe and now - path.stat().st_mtime >= age_s:
                    path.unlink()
                    removed += 1
            if Path(below) != root and not any(Path(below).iterdir()):
                Path(below).rmdir()
        return removed

    def remove_folder(self, folder: str) -> None:
        shutil.rmtree(self.folder / folder, ignore_errors=True)

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def _make_inside(self, folder: Path) -> None:
        """Creates a folder below this one. Raises LeadsOutside where a link leads out of it."""
        folder.mkdir(parents=True, exist_ok=True)
        if not folder.resolve().is_relative_to(self.folder.resolve()):
            raise LeadsOutside(f"{folder} leads out of {self.folder}")
        for one in (folder, *folder.parents):
            sync_folder(one)
            if one == self.folder:
                break


class LocalUpload:
    """A file in the folder of staged files, which nothing reads before a commit names it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._file = path.open("xb", buffering=_BUFFER)
        self.write: Callable[[bytes | memoryview], object] = self._file.write

    def close(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def discard(self) -> None:
        try:
            self._file.close()
        finally:
            self._path.unlink(missing_ok=True)


def write_synced(path: Path, text: bytes) -> None:
    with path.open("wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _link_new(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise NameTaken(str(path)) from None
    except OSError as error:
        if error.errno in _WITHOUT_LINKS:
            raise NotExclusive(
                error.errno,
                f"the file system has no hard links ({error.strerror}), without which two drivers could write"
                " the same commit: use another file system",
                str(path.parent),
            ) from error
        raise


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
