"""Where the files of an endpoint are: a folder of this machine, or an object store.

Names are relative to the endpoint, with `/` between their parts. All methods block, and raise OSError with a
text for people: a missing file is a FileNotFoundError. A file appears under its name whole or not at all.

A name that could lead out of the endpoint is a LeadsOutside before anything is done, and so is a symbolic
link on the way to a file: no operation follows one, also where it takes the place of a folder meanwhile.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from runtime.contract.records.record_values import MAX_TEXT_BYTES
from runtime.contract.spec.files import name_problem

MOST_READ: Final = MAX_TEXT_BYTES + 1_024  # of a part of a manifest: its decoder takes no more
_BUFFER: Final = 1 << 20
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PROBE: Final = ".now"  # its time is that of the file system
_NOT_EMPTY: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.ENOENT})
_WITHOUT_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})


class NameTaken(Exception):
    """A file of this name is there already."""


class NotExclusive(OSError):
    """The store can't create a file only where there is none, so two drivers could write one commit."""


class LeadsOutside(Exception):
    """A name or a symbolic link could lead out of the endpoint; the text names it."""


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
    def read(self, name: str) -> bytes:
        """Returns the content of a part of a manifest, which has at most MOST_READ bytes."""

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


class LocalFolder(FileStore):
    """A folder that every machine of the job sees under one path.

    Each operation walks from the folder to the file with a handle for each folder on the way. So what is
    opened, moved or removed is below the folder, whatever other writers do to it meanwhile.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.address = str(self.folder)

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
            with self._folder(checked_name(folder), folder) as handle, os.scandir(handle) as entries:
                return [entry.name for entry in entries if entry.name > after]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self, name: str) -> bytes:
        with self.open(name) as file:
            text = file.read(MOST_READ + 1)
        if len(text) > MOST_READ:
            raise too_long(self.path(name))
        return text

    def open(self, name: str) -> BinaryIO:
        """Opens a file for reading. A device or a pipe is no file."""
        with self._parent(name) as (folder, last), self._explained(name):
            handle = os.open(last, _FILE, dir_fd=folder)
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                os.close(handle)
                raise OSError(errno.EINVAL, "it is no regular file")
            return os.fdopen(handle, "rb")

    def sizes(self, names: Sequence[str]) -> list[int | None]:
        return [self._size(name) for name in names]

    def _size(self, name: str) -> int | None:
        try:
            with self._parent(name) as (folder, last):
                status = os.stat(last, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def add(self, name: str, text: bytes) -> None:
        with self._parent(name, make=True) as (folder, last), self._explained(name):
            temporary = f".{last}.{uuid.uuid4().hex}.tmp"
            try:
                with os.fdopen(os.open(temporary, _NEW_FILE, 0o666, dir_fd=folder), "wb") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                self._link_new(folder, temporary, last, name)
            finally:
                _unlink(folder, temporary)
            os.fsync(folder)

    def _link_new(self, folder: int, temporary: str, last: str, name: str) -> None:
        try:
            os.link(temporary, last, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            raise NameTaken(self.path(name)) from None
        except OSError as error:
            if error.errno in _WITHOUT_LINKS:
                raise NotExclusive(
                    error.errno,
                    f"the file system has no hard links ({error.strerror}), without which two drivers could"
                    " write the same commit: use another file system",
                    str((self.folder / name).parent),
                ) from error
            raise

    def upload(self, name: str) -> Upload:
        with self._parent(name, make=True) as (folder, last), self._explained(name):
            return LocalUpload(folder, last)

    def move(self, moves: Sequence[tuple[str, str]]) -> list[str]:
        for names in moves:
            for name in names:
                checked_name(name)
        made: set[str] = set()
        missing: list[str] = []
        for old, new in moves:
            target = _folder_of(new)
            try:
                self._move(old, new, make=target not in made)
            except FileNotFoundError:
                missing.append(new)
            else:
                made.add(target)
        for folder in {_folder_of(name) for names in moves for name in names}:
            with suppress(FileNotFoundError), self._folder(folder, folder) as handle:
                os.fsync(handle)
        return missing

    def _move(self, old: str, new: str, *, make: bool) -> None:
        """Moves a file. Raises FileNotFoundError where it is not there, before a folder is made."""
        with self._parent(old) as (source, name), self._explained(old):
            status = os.stat(name, dir_fd=source, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                raise self._link(old)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "it is no regular file")
            with self._parent(new, make=make) as (folder, last):
                os.utime(name, dir_fd=source, follow_symlinks=False)
                os.replace(name, last, src_dir_fd=source, dst_dir_fd=folder)

    def remove(self, names: Iterable[str]) -> None:
        folders = set()
        for name in names:
            with suppress(FileNotFoundError, NotADirectoryError), self._parent(name) as (folder, last):
                _unlink(folder, last)
                folders.add(_folder_of(name))
        for below in folders:
            with self._folder(below, below) as folder:
                os.fsync(folder)

    def remove_older(self, folder: str, age_s: float, keep: Collection[str] = ()) -> int:
        try:
            with self._folder(checked_name(folder), folder) as root, self._explained(f"{folder}/{_PROBE}"):
                return _remove_older(root, folder, age_s, keep)
        except (FileNotFoundError, NotADirectoryError):
            return 0

    def remove_folder(self, folder: str) -> None:
        with suppress(OSError), self._parent(folder) as (above, last):
            shutil.rmtree(last, ignore_errors=True, dir_fd=above)

    @contextmanager
    def _parent(self, name: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """Opens the folder that a file is in, and yields its handle and the file's name there.

        Raises LeadsOutside, OSError.
        """
        checked_name(name)
        with self._folder(_folder_of(name), name, make=make) as handle:
            yield handle, name.rpartition("/")[2]

    @contextmanager
    def _folder(self, folder: str, name: str, *, make: bool = False) -> Iterator[int]:
        """Opens a folder below this one, and makes it where that is asked. Raises LeadsOutside, OSError.

        A folder that is not there is a FileNotFoundError of `name`.
        """
        parts = folder.split("/") if folder else []
        try:
            handle = open_folder(self.folder, parts, make=make)
        except SymbolicLink as error:
            raise self._link("/".join(parts[: error.depth + 1])) from None
        except FileNotFoundError as error:
            raise OSError(error.errno, error.strerror, self.path(name)) from None
        try:
            yield handle
        finally:
            os.close(handle)

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        """Adds the path to an OSError, which knows the file's name alone."""
        try:
            yield
        except NotExclusive:
            raise
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self._link(name) from None
            raise OSError(error.errno, error.strerror, self.path(name)) from None

    def _link(self, name: str) -> LeadsOutside:
        return LeadsOutside(f"{self.path(name)} is a symbolic link, and none is followed: remove the link")


class SymbolicLink(NotADirectoryError):
    """A part of a path is a symbolic link; `depth` is its place among the parts."""

    def __init__(self, name: str, depth: int) -> None:
        super().__init__(errno.ENOTDIR, "it is a symbolic link", name)
        self.depth = depth


def open_folder(root: Path, names: Sequence[str], *, make: bool = False) -> int:
    """Opens a folder below another, step by step, so that no link leads out of it, and returns its handle.

    With `make`, folders that are not there are made, durably. Raises SymbolicLink, OSError.
    """
    handle = os.open(root, _FOLDER)
    for depth, name in enumerate(names):
        above = handle
        try:
            handle = _open_inside(above, name, make=make)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP) and _is_link(above, name):
                raise SymbolicLink(name, depth) from None
            where = str(root.joinpath(*names[: depth + 1]))
            raise OSError(error.errno, error.strerror, where) from None
        finally:
            os.close(above)
    return handle


def _open_inside(above: int, name: str, *, make: bool) -> int:
    if name in ("", ".", ".."):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=above)
        os.fsync(above)
    return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=above)


def _is_link(folder: int, name: str) -> bool:
    with suppress(OSError):
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    return False


def checked_name(name: str) -> str:
    """Returns the name of a file or folder. Raises LeadsOutside where it could lead out of the endpoint."""
    if (problem := name_problem(name)) is not None:
        raise LeadsOutside(f"the name {problem}")
    return name


def too_long(path: str) -> OSError:
    """Returns the error of a file that is longer than any part of a manifest."""
    return OSError(errno.EFBIG, f"it has more than {MOST_READ} bytes", path)


def _folder_of(name: str) -> str:
    return name.rpartition("/")[0]


def _unlink(folder: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _remove_older(root: int, folder: str, age_s: float, keep: Collection[str]) -> int:
    """Removes files below an open folder, whose name is `folder`, and the folders that are empty then."""
    probe = os.open(_PROBE, _FILE | os.O_CREAT, 0o666, dir_fd=root)
    try:
        os.utime(probe)
        now = os.fstat(probe).st_mtime
    finally:
        os.close(probe)
    removed = 0
    for below, folders, files, handle in os.fwalk(".", topdown=False, dir_fd=root):
        for name in files:
            path = os.path.normpath(f"{folder}/{below}/{name}")
            if path == f"{folder}/{_PROBE}" or path in keep:
                continue
            status = os.stat(name, dir_fd=handle, follow_symlinks=False)
            if now - status.st_mtime >= age_s:
                os.unlink(name, dir_fd=handle)
                removed += 1
        for name in folders:
            try:
                os.rmdir(name, dir_fd=handle)
            except OSError as error:
                if error.errno not in _NOT_EMPTY:
                    raise
    return removed


class LocalUpload:
    """A file in the folder of staged files, which nothing reads before a commit names it."""

    def __init__(self, folder: int, name: str) -> None:
        self._name = name
        self._file = os.fdopen(os.open(name, _NEW_FILE, 0o666, dir_fd=folder), "wb", buffering=_BUFFER)
        self._folder: int | None = os.dup(folder)
        self.write: Callable[[bytes | memoryview], object] = self._file.write

    def close(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._leave()

    def discard(self) -> None:
        with suppress(OSError):  # what is still to be written may not fit on the disk
            self._file.close()
        if self._folder is not None:
            with suppress(OSError):
                os.unlink(self._name, dir_fd=self._folder)
        self._leave()

    def _leave(self) -> None:
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None
