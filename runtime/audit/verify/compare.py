"""Two sides of one stretch of a partition, record by record. Pure: lines in, edits out.

Where neither side is compacted the two are compared as sequences, and the offset map is held against what was
found: so a record that is missing makes one difference, not one of everything behind it. Where one is
compacted only the map can tell which two belong together, and what one side holds alone tells nothing.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

WINDOW = 512  # how far a record may have moved and still be known again
RECENT = 8_192
LIMIT = 100  # edits in a stretch; behind so many, nothing more is learned
_RAW = 32
_DIGEST = 40  # longer than anything that is kept as it is


class Print(msgspec.Struct, frozen=True, array_like=True):
    """All that must be equal. What is long is its digest."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Line(NamedTuple):
    """`at`: the offset at the other side by the map; None where it names none."""

    offset: int
    at: int | None
    print: Print


class Edit(msgspec.Struct, frozen=True, array_like=True):
    """`near`: the source offset up to which all was equal. `twin`: an equal record's offset at the source."""

    what: Literal["missing", "extra", "changed", "moved"]
    near: int
    source_offset: int | None
    expected: int | None
    destination_offset: int | None
    source: Print | None
    destination: Print | None
    twin: int | None = None


def condensed(content: bytes | None) -> bytes | None:
    if content is None or len(content) <= _RAW:
        return content
    return hashlib.blake2b(content, digest_size=_DIGEST).digest()


class Comparer:
    """Feed `here` and `there` while they are wanted, tell when a side ended, `advance` after each."""

    def __init__(self, low: int, *, compacted: bool, limit: int = LIMIT, window: int = WINDOW) -> None:
        self.edits: list[Edit] = []
        self.matched = 0
        self.one_sided = 0
        self._compacted = compacted
        self._limit, self._window = limit, window
        self._here: deque[Line] = deque()
        self._there: deque[Line] = deque()
        self._here_ended = self._there_ended = False
        self._near = low
        self._shift = 0  # of the last pair: how far from where the map says it was
        self._net = 0  # extra records less missing ones: a shift that is explained
        self._recent: OrderedDict[Print, int] = OrderedDict()
        self._lost: set[Print] = set()
        self._surplus: set[Print] = set()

    @property
    def through(self) -> int:
        """Behind the last pair."""
        return self._near

    @property
    def full(self) -> bool:
        return len(self.edits) >= self._limit

    @property
    def done(self) -> bool:
        ended = self._here_ended and self._there_ended and not self._here and not self._there
        return self.full or ended

    @property
    def wants_here(self) -> bool:
        return not self._here_ended and len(self._here) < self._window

    @property
    def wants_there(self) -> bool:
        return not self._there_ended and len(self._there) < self._window

    def here(self, lines: Iterable[Line]) -> None:
        self._here.extend(lines)

    def there(self, lines: Iterable[Line]) -> None:
        self._there.extend(lines)

    def here_ended(self) -> None:
        self._here_ended = True

    def there_ended(self) -> None:
        self._there_ended = True

    def advance(self) -> None:
        """As far as what was fed decides."""
        step = self._by_the_map if self._compacted else self._in_order
        while not self.full and step():
            pass

    def _by_the_map(self) -> bool:
        here, there = self._heads()
        if here is None and there is None:
            return False
        if (here is None and not self._here_ended) or (there is None and not self._there_ended):
            return False
        if here is not None and here.at is None:
            self._missing()
        elif here is None or (there is not None and there.offset < (here.at or 0)):
            assert there is not None
            if there.at is None:
                self._extra()
            else:
                self._there.popleft()
                self.one_sided += 1
        elif there is None or (here.at or 0) < there.offset:
            self._here.popleft()
            self.one_sided += 1
        elif here.print == there.print:
            self._match()
        else:
            self._changed()
        return True

    def _in_order(self) -> bool:
        here, there = self._heads()
        if here is not None and there is not None and here.print == there.print:
            self._match()
            return True
        if (here is None and there is None) or self.wants_here or self.wants_there:
            return False  # nothing, or too little to see what became of it
        if there is None:
            self._missing()
        elif here is None:
            self._extra()
        else:
            self._differ(here, there)
        return True

    def _differ(self, here: Line, there: Line) -> None:
        ahead = _find(self._here, there.print)
        behind = _find(self._there, here.print)
        match ahead, behind:
            case None, None:
                self._unknown(here, there)
            case None, _:
                self._extra()
            case int(), None:
                self._missing()
            case int(one), int(other) if one <= other:
                self._missing()
            case _:
                self._extra()

    def _unknown(self, here: Line, there: Line) -> None:
        """Neither is ahead at the other side; it may be one that was passed."""
        due = here.at + self._shift if here.at is not None else None
        if due is None or due < there.offset:
            self._missing()
        elif there.offset < due:
            self._extra()
        elif there.print in self._recent or there.print in self._lost or here.print in self._surplus:
            self._missing()
            self._extra()
        else:
            self._changed()

    def _heads(self) -> tuple[Line | None, Line | None]:
        return (self._here[0] if self._here else None), (self._there[0] if self._there else None)

    def _match(self) -> None:
        here, there = self._here.popleft(), self._there.popleft()
        self.matched += 1
        self._remember(here)
        if here.at is None:
            self._moved(here, there)
        elif (shift := there.offset - here.at) != self._shift:
            self._shift = shift
            if shift not in (0, self._net):
                self._moved(here, there)
        self._near = here.offset + 1

    def _remember(self, here: Line) -> None:
        self._recent[here.print] = here.offset
        if len(self._recent) > RECENT:
            self._recent.popitem(last=False)

    def _moved(self, here: Line, there: Line) -> None:
        self.edits.append(
            Edit("moved", self._near, here.offset, here.at, there.offset, here.print, there.print)
        )

    def _missing(self) -> None:
        here = self._here.popleft()
        self._net -= 1
        self._lost.add(here.print)
        self.edits.append(Edit("missing", self._near, here.offset, here.at, None, here.print, None))

    def _extra(self) -> None:
        there = self._there.popleft()
        self._net += 1
        self._surplus.add(there.print)
        twin = self._recent.get(there.print)
        self.edits.append(Edit("extra", self._near, None, None, there.offset, None, there.print, twin))

    def _changed(self) -> None:
        here, there = self._here.popleft(), self._there.popleft()
        self.edits.append(
            Edit("changed", self._near, here.offset, here.at, there.offset, here.print, there.print)
        )


def _find(lines: Sequence[Line], print_: Print) -> int | None:
    return next((at for at, line in enumerate(lines) if line.print == print_), None)
