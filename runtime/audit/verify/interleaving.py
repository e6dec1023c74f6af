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

    @property
    def size(self) -> int:
        return self.end - self.begin


class _Choice(NamedTuple):
    """A transaction that fits several files alike, the one that was chosen, and some of the others."""

    range: TransactionRange
    chosen: str
    others: tuple[str, ...]


class Interleaving(Struct):
    """Says which transactions hold the lines of which file.

    `left` has for each file how many of its first lines no transaction holds, `taken` its transactions, the
    last one first. `unknown` are those that fit no file, in the order of the partition. `alike` are files
    whose lines could not be distinguished.
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
    matched = matcher.match(ranges)
    if matcher.ambiguous and matched.unknown and any(matched.left.values()):
        better = _match_in_parallel(files, records, ranges)
        if better is not None and sum(better.left.values()) < sum(matched.left.values()):
            better.alike = matcher.not_told_apart(better.left)
            return better
    return matched


class _Matcher:
    def __init__(self, files: Mapping[str, Sequence[int]], records: Sequence[int]) -> None:
        self._files, self._records = files, records
        self._matched = Interleaving({name: len(lines) for name, lines in files.items()})
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
        for transaction in reversed(ranges):
            if not transaction.size:
                continue
            fitting = list(islice(self._fitting(transaction), 1 + _MOST_ALIKE))
            if not fitting and self._chosen_otherwise(transaction):
                fitting = list(islice(self._fitting(transaction), 1 + _MOST_ALIKE))
            if not fitting:
                self._matched.unknown.append(transaction)
                continue
            if len(fitting) > 1:
                self._choices.append(_Choice(transaction, fitting[0], tuple(fitting[1:])))
            self._take(fitting[0], transaction)
        self._matched.unknown.reverse()
        self._matched.alike = self.not_told_apart(self._matched.left)
        return self._matched

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

    def _fitting(self, transaction: TransactionRange) -> Iterator[str]:
        """Yields the files whose last lines that are left are those of the transaction."""
        ending = self._ends.get(
            tuple(self._records[max(transaction.end - 2, transaction.begin) : transaction.end]), ()
        )
        return (name for name in ending if self._fits(name, transaction, 0))

    def _fits(self, name: str, transaction: TransactionRange, before: int) -> bool:
        """Returns whether a transaction holds the lines of a file that stand `before` the last one left.

        A negative number means lines behind it, which another transaction would give back.
        """
        end, size = self._matched.left[name] - before, transaction.size
        return (
            end >= size
            and self._files[name][end - size : end] == self._records[transaction.begin : transaction.end]
        )

    def _chosen_otherwise(self, transaction: TransactionRange) -> bool:
        """Gives an earlier transaction to another file that it fits too, where this one then fits there."""
        for at in range(len(self._choices) - 1, max(-1, len(self._choices) - 1 - _MOST_TRIED), -1):
            choice = self._choices[at]
            size = choice.range.size
            if self._matched.taken[choice.chosen][-1] != choice.range:
                continue  # lines before it were found already
            fits_chosen = self._fits(choice.chosen, transaction, -size)
            for name in islice(self._fitting(choice.range), _MOST_TRIED):
                if self._matched.taken[name] and self._matched.taken[name][-1] < choice.range:
                    continue  # the topic has later lines of this file before it
                if name != choice.chosen and (fits_chosen or self._fits(name, transaction, size)):
                    self._take(choice.chosen, choice.range, back=True)
                    self._take(name, choice.range)
                    others = (choice.chosen, *(other for other in choice.others if other != name))
                    self._choices[at] = _Choice(choice.range, name, others[:_MOST_ALIKE])
                    return True
        return False

    def _take(self, name: str, transaction: TransactionRange, *, back: bool = False) -> None:
        """Gives a transaction to a file, or takes it back."""
        for lines in self._last_lines(name):
            del self._ends[lines][name]
        size, taken = transaction.size, self._matched.taken[name]
        self._matched.left[name] += size if back else -size
        (taken.remove if back else taken.append)(transaction)
        self._list(name)

    def _list(self, name: str) -> None:
        for lines in self._last_lines(name):
            self._ends[lines][name] = None

    def _last_lines(self, name: str) -> Iterator[tuple[int, ...]]:
        left = self._matched.left[name]
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
    for transaction in reversed(ranges):
        content = records[transaction.begin : transaction.end]
        following: dict[tuple[int, ...], _Step | None] = {}
        for left, taken in states.items():
            for at, (name, lines) in enumerate(files.items()):
                steps += 1
                begin = left[at] - len(content)
                if not content or begin < 0 or lines[begin : left[at]] != content:
                    continue
                steps += len(left)
                if len(following) < _MOST_STATES and steps <= _MOST_STEPS:
                    following.setdefault(
                        (*left[:at], begin, *left[at + 1 :]), _Step(taken, name, transaction)
                    )
            if steps > _MOST_STEPS:
                return None
        if following:
            states = following
        elif content:
            unknown.append(transaction)
    left, taken = next(iter(states.items()))  # all of them took the same transactions
    matched = Interleaving(dict(zip(files, left, strict=True)), unknown=unknown[::-1])
    while taken is not None:
        matched.taken[taken.name].append(taken.range)
        taken = taken.before
    for some in matched.taken.values():
        some.reverse()
    return matched


def owners_of_unknown(
    matched: Interleaving, files: Mapping[str, Sequence[int]], records: Sequence[int]
) -> dict[str, list[TransactionRange]]:
    """Returns which unknown transactions are likely to be of which incomplete file: most lines decide.

    At least half of its records are lines that are left of the file, and it stands before those that are
    known to be the file's. Any other is of none: another producer wrote it, or a file that is forgotten.
    """
    if not matched.unknown:
        return {}
    wanted = {
        digest for transaction in matched.unknown for digest in records[transaction.begin : transaction.end]
    }
    lines = {name: wanted.intersection(files[name][:left]) for name, left in matched.left.items() if left}
    firsts = {name: matched.taken[name][-1].begin if matched.taken[name] else len(records) for name in lines}
    owned: defaultdict[str, list[TransactionRange]] = defaultdict(list)
    for transaction in matched.unknown:
        digests = records[transaction.begin : transaction.end]
        common = {
            name: sum(digest in known for digest in digests)
            for name, known in lines.items()
            if transaction.end <= firsts[name]
        }
        best = max(sorted(common), key=lambda name: common[name], default=None)
        if best is not None and common[best] * 2 >= len(digests):
            owned[best].append(transaction)
    return owned


def places_of(lines: Sequence[int], content: Sequence[int], begin: int, end: int) -> Iterator[int]:
    """Yields the numbers `begin … end` of lines from which on a file has these lines."""
    at, end = begin, min(end, len(lines) - len(content))
    while at <= end:
        try:
            at = lines.index(content[0], at, end + 1)
        except ValueError:
            return
        if lines[at : at + len(content)] == content:
            yield at
        at += 1


def numbers() -> array[int]:
    """Returns an empty sequence of digests or offsets: eight bytes for each record."""
    return array("q")
