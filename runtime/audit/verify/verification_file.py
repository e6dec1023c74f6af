"""Stores the progress of a comparison in a file: a comparison that was interrupted resumes from it.

The first line is the plan as it was made at the start, each further line the result of one task. The pieces
of a line that was cut in the middle are compared again. Keys and values of records that differ may be in the
file: only its owner can read it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from runtime.audit.verify.plan import PlannedPartition
from runtime.audit.verify.request import VerificationPiece, VerifiedPiece

_VERSION = 1


class _Begun(msgspec.Struct, frozen=True):
    version: int
    at_ms: int
    planned: list[PlannedPartition]


_begun = msgspec.json.Decoder(_Begun)
_found = msgspec.json.Decoder(list[VerifiedPiece])


class SavedVerification(NamedTuple):
    """Holds the stored progress. `pieces`: those that were compared to their end."""

    at_ms: int
    planned: list[PlannedPartition]
    pieces: list[VerifiedPiece]


class VerificationFile:
    """Stores the progress of one comparison. Without a file it stores nothing."""

    def __init__(self, file: Path | None) -> None:
        self._file = file

    def begin(self, at_ms: int, planned: list[PlannedPartition]) -> None:
        if self._file is None:
            return
        self._file.unlink(missing_ok=True)
        self._write(msgspec.json.encode(_Begun(_VERSION, at_ms, planned)), os.O_CREAT | os.O_EXCL)

    def add(self, pieces: Sequence[VerifiedPiece]) -> None:
        """Stores compared pieces. A piece that could not be read is not stored: it is compared again."""
        read = [piece for piece in pieces if not piece.unread or piece.passed]
        if self._file is not None and read:
            self._write(msgspec.json.encode(read), os.O_APPEND)

    def load(self) -> SavedVerification | None:
        """Returns the stored progress, or None where there is nothing to resume."""
        if self._file is None or not self._file.exists():
            return None
        first, *more = self._file.read_bytes().split(b"\n")
        try:
            begun = _begun.decode(first)
        except msgspec.DecodeError:
            return None
        if begun.version != _VERSION:
            return None
        return SavedVerification(begun.at_ms, begun.planned, list(_whole(more)))

    def close(self) -> None:
        """Deletes the file, because the comparison is complete."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def _write(self, line: bytes, how: int) -> None:
        assert self._file is not None
        with os.fdopen(os.open(self._file, os.O_WRONLY | how, 0o600), "wb") as file:
            file.write(line + b"\n")


def remaining(
    groups: Sequence[Sequence[VerificationPiece]], pieces: Iterable[VerifiedPiece]
) -> list[list[VerificationPiece]]:
    """Returns the pieces of each group that are still to be compared."""
    done = {(piece.number, piece.low) for piece in pieces}
    rest = ([piece for piece in group if (piece.number, piece.low) not in done] for group in groups)
    return [group for group in rest if group]


def _whole(lines: Iterable[bytes]) -> Iterable[VerifiedPiece]:
    for line in lines:
        with suppress(msgspec.DecodeError):
            yield from _found.decode(line)
