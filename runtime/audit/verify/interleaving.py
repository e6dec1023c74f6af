"""Finds which transactions of a partition hold the lines of which file. It is pure.

A flow from files writes a transaction for some lines of one file, so a partition is a sequence of such
transactions, of several files in turn. The ledger knows how far a file was read, not which transaction
belongs to which file: equal content decides. It is matched from the end backwards, so records that retention
deleted, or that were written before a file was read anew, are those that are left at the beginning.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec import Struct, field

_MOST_TRIED = 64  # earlier choices that are looked at again where a transaction fits nowhere
_MOST_ALIKE = 8  # other files that are remembered of a choice (R8)
_MOST_STATES = 64  # partial results that are continued side by side
_MOST_STEPS = 1_000_000  # of all partial results: a few seconds


class TransactionRange(NamedTuple):
    """The records `begin … end-1` of a partition, by their number, that one transaction wrote."""

    begin: int
    end: int


class _Choice(NamedTuple):
    """A transaction that fits several files alike, the one that was chosen, and some of the others."""

    range: TransactionRange
    chosen: str
    others: tuple[str, ...]


class Interleaving(Struct):
    """What was found. `left` has for each file how many of its first lines no transaction holds.

    `taken` has the transactions of each file, the last one first. `unknown` are those that fit no file, in
    the order of the partition. `alike` are files whose lines could not be told apart.
    """

    left: dict[str, int]
    taken: dict[str, list[TransactionRange]] = field(default_factory=lambda: defaultdict(list))
    unknown: list[TransactionRange] = field(default_factory=list)
    alike: set[str] = field(default_factory=set)


def match(
    files: Mapping[str, Sequence[int]], records: Sequence[int], ranges: Sequence[TransactionRange]
) -> Interleaving:
    """Finds the transactions of each file. `files` and `records` hold digests of lines and of records."""
    matcher = _Matcher(files, records)
    found = matcher.match(ranges)
    if matcher.ambiguous and found.unknown and any(found.left.values()):
        better = _match_in_parallel(files, records, ranges)
        if better is not None and sum(better.left.values()) < sum(found.left.values()):
            better.alike = matcher.not_told_apart(better.left)
            return better
    return found


class _Matcher:
    def __init__(self, files: Mapping[str, Sequence[int]], records: Sequence[int]) -> None:
        self._files, self._records = files, records
        self._found = Interleaving({name: len(lines) for name, lines in files.items()})
        # Files by their last line that is left, and by the last two, as many files end with one line. They
        # are in their order: equal input has equal results.
        self._ends: defaultdict[tuple[int, ...], dict[str, None]] = defaultdict(dict)
        self._choices: list[_Choice] = []
        for name in sorted(files):
            self._list(name)

    @property
    def ambiguous(self) -> bool:
        """Returns whether any transaction fitted several files."""
        return bool(self._choices)

    def match(self, ranges: Sequence[TransactionRange]) -> Interleaving:
        for one in reversed(ranges):
            if one.begin == one.end:
                continue
            fitting = self._fitting(one)
            if not fitting and self._chosen_otherwise(one):
                fitting = self._fitting(one)
            if not fitting:
                self._found.unknown.append(one)
                continue
            if len(fitting) > 1:
                self._choices.append(_Choice(one, fitting[0], tuple(fitting[1:])))
            self._take(fitting[0], one)
        self._found.unknown.reverse()
        self._found.alike = self.not_told_apart(self._found.left)
        return self._found

    def not_told_apart(self, left: Mapping[str, int]) -> set[str]:
        """Returns the files that may hold each other's transactions, where any of them is incomplete.

        A wrong choice also changes what is left for other files that have such lines.
        """
        alike = set[str]()
        for choice in self._choices:
            names = {choice.chosen, *choice.others}
            if any(left[name] for name in names):
                alike |= names
        if alike:
            ends = {self._records[choice.range.end - 1] for choice in self._choices}
            alike.update(
                name for name, count in left.items() if count and not ends.isdisjoint(self._files[name])
            )
        return alike

    def _fitting(self, one: TransactionRange) -> list[str]:
        """Returns the first few files whose last lines that are left are those of the transaction."""
        return list(islice(self._all_fitting(one), 1 + _MOST_ALIKE))

    def _all_fitting(self, one: TransactionRange) -> Iterator[str]:
        ending = self._ends.get(tuple(self._records[max(one.end - 2, one.begin) : one.end]), ())
        return (name for name in ending if self._fits(name, one, 0))

    def _fits(self, name: str, one: TransactionRange, before: int) -> bool:
        """Returns whether a transaction holds the lines of a file that stand `before` the last one left.

        A negative number means lines behind it, which another transaction would give back.
        """
        end, size = self._found.left[name] - before, one.end - one.begin
        return end >= size and self._files[name][end - size : end] == self._records[one.begin : one.end]

    def _chosen_otherwise(self, one: TransactionRange) -> bool:
        """Gives an earlier transaction to another file that it fits too, where this one then fits there."""
        for at in range(len(self._choices) - 1, max(-1, len(self._choices) - 1 - _MOST_TRIED), -1):
            choice = self._choices[at]
            size = choice.range.end - choice.range.begin
            if self._found.taken[choice.chosen][-1] != choice.range:
                continue  # lines before it were found already
            fits_chosen = self._fits(choice.chosen, one, -size)
            for name in islice(self._all_fitting(choice.range), _MOST_TRIED):
                if self._found.taken[name] and self._found.taken[name][-1] < choice.range:
                    continue  # the topic has later lines of this file before it
                if name != choice.chosen and (fits_chosen or self._fits(name, one, size)):
                    self._give_back(choice.chosen, choice.range)
                    self._take(name, choice.range)
                    others = (choice.chosen, *(other for other in choice.others if other != name))
                    self._choices[at] = _Choice(choice.range, name, others[:_MOST_ALIKE])
                    return True
        return False

    def _take(self, name: str, one: TransactionRange) -> None:
        self._unlist(name)
        self._found.left[name] -= one.end - one.begin
        self._found.taken[name].append(one)
        self._list(name)

    def _give_back(self, name: str, one: TransactionRange) -> None:
        self._unlist(name)
        self._found.left[name] += one.end - one.begin
        self._found.taken[name].remove(one)
        self._list(name)

    def _list(self, name: str) -> None:
        for lines in self._last_lines(name):
            self._ends[lines][name] = None

    def _unlist(self, name: str) -> None:
        for lines in self._last_lines(name):
            del self._ends[lines][name]

    def _last_lines(self, name: str) -> Iterator[tuple[int, ...]]:
        left = self._found.left[name]
        return (tuple(self._files[name][left - size : left]) for size in (1, 2) if size <= left)


class _Step(NamedTuple):
    """A transaction that a partial result gave to a file, and the step before it."""

    before: _Step | None
    name: str
    range: TransactionRange


def _match_in_parallel(
    files: Mapping[str, Sequence[int]], records: Sequence[int], ranges: Sequence[TransactionRange]
) -> Interleaving | None:
    """Finds the transactions of each file where early choices decide what fits much later.

    It continues several partial results side by side. None means that there are too many of them.
    """
    unknown: list[TransactionRange] = []
    states: dict[tuple[int, ...], _Step | None] = {tuple(map(len, files.values())): None}
    steps = 0
    for one in reversed(ranges):
        content = records[one.begin : one.end]
        following: dict[tuple[int, ...], _Step | None] = {}
        for left, taken in states.items():
            for at, (name, lines) in enumerate(files.items()):
                steps += 1
                begin = left[at] - len(content)
                if not content or begin < 0 or lines[begin : left[at]] != content:
                    continue
                steps += len(left)
                if len(following) < _MOST_STATES and steps <= _MOST_STEPS:
                    following.setdefault((*left[:at], begin, *left[at + 1 :]), _Step(taken, name, one))
            if steps > _MOST_STEPS:
                return None
        if following:
            states = following
        elif content:
            unknown.append(one)
    left, taken = next(iter(states.items()))  # all of them took the same transactions
    found = Interleaving(dict(zip(files, left, strict=True)), unknown=unknown[::-1])
    while taken is not None:
        found.taken[taken.name].append(taken.range)
        taken = taken.before
    for some in found.taken.values():
        some.reverse()
    return found


def owners_of_unknown(
    found: Interleaving, files: Mapping[str, Sequence[int]], records: Sequence[int]
) -> dict[str, list[TransactionRange]]:
    """Returns which unknown transactions are likely to be of which incomplete file: most lines decide.

    At least half of its records are lines that are left of the file, and it stands before those that are
    known to be the file's. Any other is of none: another producer wrote it, or a file that is forgotten.
    """
    if not found.unknown:
        return {}
    wanted = {digest for one in found.unknown for digest in records[one.begin : one.end]}
    lines = {name: wanted.intersection(files[name][:left]) for name, left in found.left.items() if left}
    firsts = {name: found.taken[name][-1].begin if found.taken[name] else len(records) for name in lines}
    owned: defaultdict[str, list[TransactionRange]] = defaultdict(list)
    for one in found.unknown:
        digests = records[one.begin : one.end]
        common = {
            name: sum(digest in known for digest in digests)
            for name, known in lines.items()
            if one.end <= firsts[name]
        }
        best = max(sorted(common), key=lambda name: common[name], default=None)
        if best is not None and common[best] * 2 >= len(digests):
            owned[best].append(one)
    return owned


def places_of(lines: Sequence[int], found: Sequence[int], begin: int, end: int) -> Iterator[int]:
    """Yields the numbers `begin … end` of lines from which on a file has these lines."""
    at, end = begin, min(end, len(lines) - len(found))
    while at <= end:
        try:
            at = lines.index(found[0], at, end + 1)
        except ValueError:
            return
        if lines[at : at + len(found)] == found:
            yield at
        at += 1


def numbers() -> array[int]:
    """Returns an empty sequence of digests or offsets: eight bytes for each record."""
    return array("q")
