"""What a comparison has done so far, in a file: one that was cut goes on where it was.

The first line is the plan as it was made when it began, each further line what one task found. What a line
that was cut in the middle told of is compared again. Keys and values of records that differ may stand in it:
only its owner can read it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from runtime.audit.verify.plan import Planned
from runtime.audit.verify.request import Piece, PieceVerified

_VERSION = 1


class _Begun(msgspec.Struct, frozen=True):
    version: int
    at_ms: int
    planned: list[Planned]


_begun = msgspec.json.Decoder(_Begun)
_found = msgspec.json.Decoder(list[PieceVerified])


class Kept(NamedTuple):
    """`pieces`: those that were read to their end."""

    at_ms: int
    planned: list[Planned]
    pieces: list[PieceVerified]


class Book:
    """Without a file it forgets."""

    def __init__(self, file: Path | None) -> None:
        self._file = file

    def begin(self, at_ms: int, planned: list[Planned]) -> None:
        if self._file is None:
            return
        self._file.unlink(missing_ok=True)
        self._write(msgspec.json.encode(_Begun(_VERSION, at_ms, planned)), os.O_CREAT | os.O_EXCL)

    def add(self, pieces: Sequence[PieceVerified]) -> None:
        """What could not be read is not remembered: it is tried again."""
        read = [piece for piece in pieces if not piece.unread or piece.passed]
        if self._file is not None and read:
            self._write(msgspec.json.encode(read), os.O_APPEND)

    def kept(self) -> Kept | None:
        """None: there is nothing to go on with."""
        if self._file is None or not self._file.exists():
            return None
        first, *more = self._file.read_bytes().split(b"\n")
        try:
            begun = _begun.decode(first)
        except msgspec.DecodeError:
            return None
        if begun.version != _VERSION:
            return None
        return Kept(begun.at_ms, begun.planned, list(_whole(more)))

    def close(self) -> None:
        """It came to its end."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def _write(self, line: bytes, how: int) -> None:
        assert self._file is not None
        with os.fdopen(os.open(self._file, os.O_WRONLY | how, 0o600), "wb") as file:
            file.write(line + b"\n")


def left(groups: Sequence[Sequence[Piece]], pieces: Iterable[PieceVerified]) -> list[list[Piece]]:
    """Of each group what is still to be compared."""
    done = {(piece.number, piece.low) for piece in pieces}
    rest = ([piece for piece in group if (piece.number, piece.low) not in done] for group in groups)
    return [group for group in rest if group]


def _whole(lines: Iterable[bytes]) -> Iterable[PieceVerified]:
    for line in lines:
        with suppress(msgspec.DecodeError):
            yield from _found.decode(line)
