"""A file that is open for reading, wherever it is.

All methods block. A file that is not there is a FileNotFoundError; another OSError has a text for people.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import BinaryIO, ClassVar, Self


class OpenFile(ABC):
    """A file that is open for reading. All methods but `close` raise OSError.

    A `complete` file does not grow, so its end ends its last line. `page` is how much of it is read at a time
    where small parts are wanted.
    """

    complete: ClassVar[bool] = False
    page: ClassVar[int] = 64 << 10

    @abstractmethod
    def size(self) -> int:
        """Returns the size in bytes now."""

    @abstractmethod
    def identity(self) -> int:
        """Returns the `identity` of a FileState."""

    @abstractmethod
    def modified_ns(self) -> int:
        """Returns when the file was written last."""

    @abstractmethod
    def read(self, position: int, size: int) -> bytes:
        """Returns the bytes from a position on: fewer than `size` only at the end of the file."""

    @abstractmethod
    def stream(self) -> BinaryIO:
        """Returns the file as a stream that can seek. Closing the stream does not close the file."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LocalFile(OpenFile):
    """A file that may grow while it is open."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def identity(self) -> int:
        return os.fstat(self._descriptor).st_ino

    def modified_ns(self) -> int:
        return os.fstat(self._descriptor).st_mtime_ns

    def read(self, position: int, size: int) -> bytes:
        """A network file system may answer with fewer bytes before the end of the file."""
        parts: list[bytes] = []
        while size > 0 and (part := os.pread(self._descriptor, size, position)):
            parts.append(part)
            position += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def stream(self) -> BinaryIO:
        return os.fdopen(self._descriptor, "rb", closefd=False)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
