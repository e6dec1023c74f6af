"""Stores the encoded runs of offset maps in temporary files: a long map does not fit in memory.

The files have no name: they disappear with the process, however it ends. The ledger is the only copy that
lasts. A file is closed when nothing refers to its runs any more. Maps are trimmed from their beginning, so
files are closed about in the order in which they were filled.
"""

from __future__ import annotations

import os
import tempfile
import weakref
import zlib

from runtime.contract.records.ledger import UnreadableRecord
from runtime.contract.records.offset_map import StoredRuns, count_runs

_FILE_BYTES = 32 << 20
_SMALL = 1_024  # bytes; the objects that describe stored runs are about as large


class RunsFiles:
    """Owns the file that is being filled."""

    def __init__(self, file_bytes: int = _FILE_BYTES) -> None:
        self._file_bytes = file_bytes
        self._file: _RunsFile | None = None

    def store(self, encoded: bytes) -> bytes | StoredRuns:
        """Returns the runs as they are to be kept: small ones as they are, others as a reference to a file.

        Where the temporary directory is full or can't be written, the runs stay in memory.
        """
        if len(encoded) < _SMALL:
            return encoded
        packed = zlib.compress(encoded, 1)
        try:
            if self._file is None or self._file.end >= self._file_bytes:
                self._file = _RunsFile()
            return _FileRuns(self._file, self._file.append(packed), len(packed), count_runs(encoded))
        except OSError:
            return encoded


class _RunsFile:
    """A temporary file without a name, which is closed with the last reference to this object."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile(prefix="repl-offset-map-") as file:
            self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)
        self.end = 0

    def append(self, packed: bytes) -> int:
        """Writes the bytes behind the others, and returns where they begin. Raises OSError."""
        at, written = self.end, 0
        while written < len(packed):
            written += os.pwrite(self._descriptor, packed[written:], at + written)
        self.end = at + len(packed)
        return at

    def read(self, at: int, size: int) -> bytes:
        """Returns bytes that were appended. Raises OSError."""
        return os.pread(self._descriptor, size, at)


class _FileRuns:
    """Encoded runs in a file."""

    __slots__ = ("_at", "_file", "_size", "count")

    def __init__(self, file: _RunsFile, at: int, size: int, count: int) -> None:
        self._file, self._at, self._size = file, at, size
        self.count = count

    def read(self) -> bytes:
        """Returns the encoded runs. Raises UnreadableRecord where the temporary file can't be read."""
        try:
            return zlib.decompress(self._file.read(self._at, self._size))
        except (OSError, zlib.error) as error:
            raise UnreadableRecord(f"offset map: its temporary file can't be read: {error}") from error
