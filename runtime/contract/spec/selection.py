"""Selects names by regexes of whole names: include, less exclude, less the default denials.

A name that `include` writes out literally is never hidden by the defaults, only by `exclude`. A name that the
defaults hide has an `SelectionResult` of its own, so that the planner can report it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from runtime.contract.spec.regex import Regex, regex

TOPIC_DENIALS = (r".*[\-\.]internal", r".*\.replica", r"__.*")
GROUP_DENIALS = (r"console-consumer-.*", r"connect-.*", r"__.*")


class SelectionResult(Enum):
    """Lists whether a selection takes a name, and why not."""

    NAMED = "named"  # taken, and written out literally
    MATCHED = "matched"  # taken by a regex
    DENIED = "denied"  # included, and hidden by a default denial alone
    EXCLUDED = "excluded"  # included, and removed by the user's exclude
    OUTSIDE = "outside"  # not included

    @property
    def taken(self) -> bool:
        return self in (SelectionResult.NAMED, SelectionResult.MATCHED)


@dataclass(frozen=True, slots=True)
class SelectionRules:
    """Holds the rules of a selection.

    `denials` are the patterns that `default_exclude` adds: for topics or for groups.
    """

    include: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    default_exclude: bool = True
    denials: tuple[str, ...] = TOPIC_DENIALS


class Selector:
    """Applies rules that are compiled once. Build one selector and use it for every name."""

    __slots__ = ("_denied", "_exclude", "include", "rules")

    def __init__(self, rules: SelectionRules) -> None:
        self.rules = rules
        self.include = NamePatterns(rules.include)
        self._exclude = NamePatterns(rules.exclude)
        self._denied = NamePatterns(rules.denials if rules.default_exclude else ())

    def answer(self, name: str) -> SelectionResult:
        """Returns whether the selection takes a name, and why not."""
        if not self.include.match(name):
            return SelectionResult.OUTSIDE
        if self._exclude.match(name):
            return SelectionResult.EXCLUDED
        if name in self.include.written_out:
            return SelectionResult.NAMED
        return SelectionResult.DENIED if self._denied.match(name) else SelectionResult.MATCHED

    @property
    def written_out(self) -> frozenset[str]:
        """Returns the names that `include` writes out literally and `exclude` does not remove."""
        return frozenset(name for name in self.include.written_out if not self._exclude.match(name))

    @property
    def open_ended(self) -> bool:
        """Returns whether `include` may match a name that it does not write out literally."""
        return bool(self.include.patterns)


_SIGN = re.compile(r"\\([^A-Za-z0-9])|([\\^$*+?{}\[\]|()])")


def written_out(entry: str) -> str | None:
    """Returns the name that a regex writes out, if it is nothing but a name: `a\\.b`, and also `a.b`."""
    if any(sign[2] for sign in _SIGN.finditer(entry)):
        return None
    return _SIGN.sub(r"\1", entry)


class NamePatterns:
    """Matches a name against many whole-name regexes at once.

    Names that are written out literally are found by a hash lookup, however many there are.
    """

    __slots__ = ("_dotted", "_exact", "_matches", "patterns", "written_out")

    def __init__(self, entries: Iterable[str]) -> None:
        self._exact: set[str] = set()
        # An unescaped dot matches any character: length → positions of the dots → the names without them.
        self._dotted: dict[int, dict[tuple[int, ...], set[str]]] = {}
        patterns: list[Regex] = []
        written = set()
        for entry in entries:
            name = written_out(entry)
            if name is None:
                patterns.append(regex(entry))
                continue
            written.add(name)
            dots = _bare_dots(entry)
            if dots:
                of_length = self._dotted.setdefault(len(name), {})
                of_length.setdefault(dots, set()).add(_without(name, dots))
            else:
                self._exact.add(name)
        self.patterns = tuple(dict.fromkeys(patterns))
        self._matches = tuple(pattern.matches for pattern in self.patterns)
        self.written_out = frozenset(written)

    def match(self, name: str) -> bool:
        """Returns whether any of the regexes matches the whole name."""
        if name in self._exact:
            return True
        of_length = self._dotted.get(len(name))
        if of_length and any(_without(name, dots) in known for dots, known in of_length.items()):
            return True
        for matches in self._matches:  # noqa: SIM110 - faster than any(), and called for every topic
            if matches(name):
                return True
        return False


def _bare_dots(entry: str) -> tuple[int, ...]:
    """Returns the positions of the unescaped dots, counted in the name that the entry writes out."""
    bare = _SIGN.sub("x", entry)
    return tuple(at for at, sign in enumerate(bare) if sign == ".")


def _without(name: str, places: tuple[int, ...]) -> str:
    kept, start = [], 0
    for place in places:
        kept.append(name[start:place])
        start = place + 1
    return "".join((*kept, name[start:]))
