"""Reads the complete lines of growing files, and recognises files that were renamed, truncated or replaced.

A file is known by its name, the position behind the last line that was read, and a fingerprint: a digest of
bytes before that position. A file whose bytes before the position have changed is another file.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from runtime.batch.varint import varint
from runtime.contract.spec.files import LineFormat

_HASHED: Final = 1_024  # bytes at the beginning of a file, and before the position
_PACKED: Final = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip", ".snappy")
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
NO_FINGERPRINT: Final = b""  # of a file of which nothing was read
READ_BYTES: Final = 4 << 20  # of one file, in one transaction
NO_KEY: Final = varint(-1)
NO_HEADERS: Final = varint(0)


def sized(content: bytes | None) -> bytes:
    """Returns a key, a value or a header's value in the encoding of a record."""
    return NO_KEY if content is None else varint(len(content)) + content


Stop = Literal["", "corrupt", "too_large"]


class FileState(NamedTuple):
    """The size of a file, the number that its file system gives it, and when it was written last.

    The size is in the unit of positions: bytes of lines, rows of Parquet. A rename keeps the inode.
    """

    size: int
    inode: int
    modified_ns: int = 0


class KnownFile(NamedTuple):
    """A file that was read up to `position`."""

    name: str
    position: int
    fingerprint: bytes
    inode: int


@dataclass(frozen=True, slots=True)
class FileProblem:
    """Says why a look at a file was enough to see that it can't be read now."""

    kind: Literal["incomplete", "corrupt", "unreadable"]
    why: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a folder. `ignored` counts the entries that are not read, by the reason."""

    files: Mapping[str, FileState]
    ignored: Mapping[str, int]
    problems: Mapping[str, FileProblem] = field(default_factory=dict)


def list_files(folder: Path, *, recursive: bool = False) -> Listing:
    """Returns the files of a folder whose lines are read; with `recursive` those of its sub-folders, too.

    A file of a sub-folder has its relative path as name. Names that begin with a dot or an underscore are
    files that someone still writes, as readers of Hadoop's folders have it. A symbolic link could lead out of
    the folder. Another file system has inodes of its own, by which files could be confused. Raises OSError.
    """
    files: dict[str, FileState] = {}
    ignored: Counter[str] = Counter()
    device = folder.stat().st_dev
    folders = [""]
    while folders:
        below = folders.pop()
        for name, found in _entries(folder, below):
            is_folder = recursive and stat.S_ISDIR(found.st_mode)
            why = _why_ignored(name, found.st_mode, is_read=is_folder)
            if is_folder and found.st_dev != device:
                why = "folders of other file systems"
            if why:
                ignored[why] += 1
            elif is_folder:
                folders.append(f"{below}{name}/")
            else:
                files[below + name] = FileState(found.st_size, found.st_ino, found.st_mtime_ns)
    return Listing(files, ignored)


def _entries(folder: Path, below: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yields what is directly in a folder below the flow's one, except for hidden names. Raises OSError.

    What is renamed meanwhile is left out: the next look shows it.
    """
    try:
        handle = _open_folder(folder, below.split("/")[:-1])
    except OSError as error:
        if below and error.errno in (errno.ENOENT, errno.ENOTDIR):
            return
        raise OSError(error.errno, error.strerror, str(folder / below)) from error
    try:
        with os.scandir(handle) as entries:
            for entry in entries:
                if entry.name.startswith((".", "_")):
                    continue
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                yield entry.name, found
    finally:
        os.close(handle)


def _why_ignored(name: str, mode: int, *, is_read: bool) -> str:
    """Returns why an entry is not read. `is_read` names a folder that is looked into."""
    if stat.S_ISLNK(mode):
        return "symbolic links"
    if not stat.S_ISREG(mode) and not is_read:
        return "folders and special files"
    if name.endswith(_PACKED) and not is_read:
        return "compressed files"
    try:
        name.encode()
    except UnicodeEncodeError:
        return "files whose names are not UTF-8"
    return ""


def open_file(folder: Path, name: str) -> int:
    """Opens a file of the folder for reading, never one that a link leads to. Raises OSError."""
    *folders, last = name.split("/")
    handle = _open_folder(folder, folders)
    try:
        return os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=handle)
    finally:
        os.close(handle)


def _open_folder(folder: Path, names: Iterable[str]) -> int:
    """Opens a folder below the flow's one, step by step, so that no link leads out of it. Raises OSError."""
    handle = os.open(folder, _FOLDER)
    for name in names:
        above = handle
        try:
            if name in ("", ".", ".."):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
            handle = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
        finally:
            os.close(above)
    return handle


def fingerprint(file: int, position: int) -> bytes | None:
    """Returns the fingerprint of an open file at a position; None where the file ends before it."""
    if position == 0:
        return NO_FINGERPRINT
    size = min(position, _HASHED)
    head, tail = os.pread(file, size, 0), os.pread(file, size, position - size)
    if len(head) < size or len(tail) < size:
        return None
    return hashlib.blake2b(head + tail, digest_size=16).digest()


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
    files: Mapping[str, FileState], known: Mapping[str, KnownFile], holds: Callable[[str, KnownFile], bool]
) -> Reconciliation:
    """Compares the files of a folder with the known ones. `holds` says whether a name has a file's bytes.

    A known file moved where another name has its inode and its bytes: bytes alone may be alike, as headers
    are, and a file system gives the inode of a deleted file to another one. A copy is a new file; a second
    link to a file that is read is none.
    """
    found = Reconciliation()
    displaced = [one for name, one in known.items() if name not in files or not holds(name, one)]
    gone = {one.name for one in displaced}
    free = {name for name in files if name not in known or name in gone}
    for one in sorted(displaced):
        places = [name for name in free if files[name].inode == one.inode and holds(name, one)]
        if places:
            found.moved.append((one, min(places)))
            free.remove(min(places))
        elif one.name in files:
            found.replaced.append(one)
        else:
            found.vanished.append(one)
    taken = {one.name for one in found.replaced}
    linked = {files[name].inode for name in known if name in files and name not in gone}
    linked |= {files[name].inode for _, name in found.moved}
    found.new = sorted(name for name in free if name not in taken and files[name].inode not in linked)
    return found


class Lines(NamedTuple):
    """Complete lines of a file, without their ends, and the position behind them.

    `stopped` says why the line at `position` is not read: it is not valid, or it is too long. `more` says
    that the file goes on behind the position.
    """

    lines: list[bytes]
    position: int
    stopped: Stop = ""
    why: str = ""
    more: bool = False


class Found(NamedTuple):
    """Records of a file as (timestamp, key, value and headers in the encoding of a batch).

    `position`, `stopped`, `why` and `more` are those of Lines. `size` is in bytes.
    """

    records: list[tuple[int, bytes]]
    size: int
    position: int
    stopped: Stop = ""
    why: str = ""
    more: bool = False


class FileReader(Protocol):
    """Reads the records of one open file.

    While it is midway, going on costs less than coming back later, and the reader holds memory.
    """

    @property
    def midway(self) -> bool: ...

    def size(self) -> int:
        """Returns the position behind all that the file holds. Raises OSError."""

    def problem(self) -> FileProblem | None:
        """Returns why nothing of the file can be read."""

    def fingerprint(self, position: int) -> bytes | None:
        """Returns the fingerprint at a position; None where the file is not what it was. Raises OSError."""

    def read(self, position: int, longest: int) -> Found:
        """Returns the next records. `longest` is the size of the longest one. Raises OSError."""


class LineReader:
    """Reads complete lines. Each is the value of a record."""

    midway = False

    def __init__(self, file: int, form: LineFormat) -> None:
        self._file = file
        self._form = form

    def size(self) -> int:
        return os.fstat(self._file).st_size

    def problem(self) -> None:
        return None

    def fingerprint(self, position: int) -> bytes | None:
        return fingerprint(self._file, position)

    def read(self, position: int, longest: int) -> Found:
        found = read_lines(self._file, position, self._form, READ_BYTES, longest)
        now_ms = int(time.time() * 1000)
        records = [(now_ms, b"".join((NO_KEY, varint(len(line)), line, NO_HEADERS))) for line in found.lines]
        return Found(records, found.position - position, *found[1:])


def read_lines(file: int, position: int, form: LineFormat, most: int, longest: int) -> Lines:
    """Returns the complete lines from a position on, of about `most` bytes. Raises OSError.

    A line ends with a line feed, which a carriage return may precede. What follows the last line feed waits.
    Blank lines of the format json are left out. `longest` is the size of the longest line.
    """
    wanted = max(most, longest + 2)
    data = _read(file, position, wanted)
    more = len(data) == wanted
    end = data.rfind(b"\n") + 1
    if end == 0 and more:
        return Lines(
            [], position, "too_large", f"the line at byte {position} has no end within {wanted} bytes", more
        )
    data = data[:end]
    whole = data.split(b"\n")[:-1]
    if form == "text" and _is_utf8(data) and b"\r" not in data and max(map(len, whole), default=0) <= longest:
        return Lines(whole, position + end, more=more)
    lines: list[bytes] = []
    at = position
    for one in whole:
        line = one.removesuffix(b"\r")
        if problem := _problem(line, form, longest):
            return Lines(lines, at, problem[0], f"the line at byte {at} {problem[1]}", more=True)
        at += len(one) + 1
        if form == "text" or line.strip():
            lines.append(line)
    return Lines(lines, at, more=more)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _read(file: int, position: int, size: int) -> bytes:
    """Reads up to `size` bytes: a network file system may answer with fewer before the end of the file."""
    parts: list[bytes] = []
    while size > 0 and (part := os.pread(file, size, position)):
        parts.append(part)
        position += len(part)
        size -= len(part)
    return b"".join(parts)


def _problem(
    line: bytes, form: LineFormat, longest: int
) -> tuple[Literal["corrupt", "too_large"], str] | None:
    if len(line) > longest:
        return "too_large", f"has {len(line)} bytes, and the topic takes records of {longest} bytes"
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return "corrupt", f"is not UTF-8: {error.reason} at its byte {error.start}"
    if form == "json" and line.strip():
        try:
            msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            return "corrupt", f"is not JSON: {error}"
    return None


def partition_for(name: str, partitions: int) -> int:
    """Returns the partition that takes the lines of a file, so that they keep their order."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest()) % partitions


def ignored_notes(ignored: Mapping[str, int]) -> Collection[str]:
    """Returns what the status says of entries that are not read."""
    return [f"{count:,} {why} in the folder are not read" for why, count in sorted(ignored.items())]
