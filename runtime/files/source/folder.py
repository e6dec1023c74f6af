"""The files in a folder of this machine."""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from runtime.files.manifest import EndpointUnavailable
from runtime.files.source.file_source import FileSource
from runtime.files.source.known_files import HIDDEN, PACKED, FileState, Listing
from runtime.files.source.open_file import LocalFile
from runtime.files.store import open_folder

_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FolderSource(FileSource):
    """The files of a folder, with `recursive` also those of its sub-folders."""

    place = "folder"

    def __init__(self, folder: Path, *, recursive: bool = False, in_rows: bool = False) -> None:
        super().__init__(recursive=recursive, in_rows=in_rows)
        self._folder = folder

    def listing(self) -> Listing:
        try:
            return list_files(self._folder, recursive=self.recursive)
        except FileNotFoundError as error:
            raise EndpointUnavailable(
                f"the folder {self._folder} is not there: create it, or mount it"
            ) from error
        except OSError as error:
            where = error.filename or self._folder
            raise EndpointUnavailable(f"the folder {where} can't be read: {error.strerror}") from error

    def open(self, name: str, version: str = "") -> LocalFile:
        return open_file(self._folder, name)


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
        for name, status in _entries(folder, below):
            is_folder = recursive and stat.S_ISDIR(status.st_mode)
            why = _why_ignored(name, status.st_mode, is_read=is_folder)
            if is_folder and status.st_dev != device:
                why = "folders of other file systems"
            if why:
                ignored[why] += 1
            elif is_folder:
                folders.append(f"{below}{name}/")
            else:
                files[below + name] = FileState(status.st_size, status.st_ino, status.st_mtime_ns)
    return Listing(files, ignored)


def _entries(folder: Path, below: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yields what is directly in a folder below the flow's one, except for hidden names. Raises OSError.

    What is renamed meanwhile is left out: the next look shows it.
    """
    try:
        handle = open_folder(folder, below.split("/")[:-1])
    except OSError as error:
        if below and error.errno in (errno.ENOENT, errno.ENOTDIR):
            return
        raise OSError(error.errno, error.strerror, str(folder / below)) from error
    try:
        with os.scandir(handle) as entries:
            for entry in entries:
                if entry.name.startswith(HIDDEN):
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                yield entry.name, status
    finally:
        os.close(handle)


def _why_ignored(name: str, mode: int, *, is_read: bool) -> str:
    """Returns why an entry is not read. `is_read` names a folder that is looked into."""
    if stat.S_ISLNK(mode):
        return "symbolic links"
    if not stat.S_ISREG(mode) and not is_read:
        return "folders and special files"
    if name.endswith(PACKED) and not is_read:
        return "compressed files"
    try:
        name.encode()
    except UnicodeEncodeError:
        return "files whose names are not UTF-8"
    return ""


def open_file(folder: Path, name: str) -> LocalFile:
    """Opens a file of the folder for reading, never one that a link leads to. Raises OSError."""
    *folders, last = name.split("/")
    handle = open_folder(folder, folders)
    try:
        return LocalFile(os.open(last, _FILE, dir_fd=handle))
    finally:
        os.close(handle)
