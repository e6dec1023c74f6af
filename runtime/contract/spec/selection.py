r"""Selects names by regexes of whole names, and compiles the regexes that users write.

A selection is include, less exclude, less the default denials. A name that `include` writes out literally is
never hidden by the defaults, only by `exclude`. A name that the defaults hide has a `SelectionResult` of its
own, so that the planner can report it.

RE2 matches a regex in time linear in the name, for any pattern. The language is what Python's `re` and RE2
read alike, so that a pattern of an older topology keeps its meaning. Each difference is refused with the way
to write it. Lookaround, backreferences, possessive and atomic groups have no linear match. `{,3}`,
`[[:alpha:]]`, `\Q…\E` and `\C` are read by only one of the two engines, or differently by each.
docs/internals/regex.md lists them.
"""

import re
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from typing import Annotated

import re2

from runtime.contract.spec.shapes import Key, SpecStruct
from runtime.contract.spec.shapes import Regex as RegexText

LONGEST = 1_000  # characters of one pattern
MOST_GROUPS = 50
_LONGEST_PREFIX = 249  # as long as a topic's name may be
MEMORY = 512 * 1024  # bytes of one compiled pattern, its automaton included

_DIFFERENT = re.compile(
    r"\\(?P<escape>[A-Za-z])|\\(?P<back>[1-9])|\\.|(?P<class>\[\^?\]?)|(?P<least>\{,\d+\})|(?P<most>\{(\d+,)?\d{4,})",
    re.DOTALL,
)
_ESCAPES = frozenset("dDwWsSbBAafnrtvx")
_LOOKAROUND = "looks ahead or behind, which cannot be matched in linear time"
_NAME_APART = "name what to leave out under exclude, or write the names in separate patterns"
_BACKREFERENCE = "refers back to a group, which cannot be matched in linear time"
_SPELL_OUT = "write the alternatives out"
_TOO_OFTEN = ("repeats more than 1,000 times", "repeat fewer times")
_ESCAPE_SIGNS = "put a backslash before a sign meant as itself"
# The beginning of RE2's error text, with the quoted part of the pattern → the problem, and the hint.
_SENTENCES: tuple[tuple[str, str, str], ...] = (
    ("invalid perl operator: (?=", _LOOKAROUND, _NAME_APART),
    ("invalid perl operator: (?!", _LOOKAROUND, _NAME_APART),
    ("invalid perl operator: (?<", _LOOKAROUND, _NAME_APART),
    ("invalid named capture group: (?<=", _LOOKAROUND, _NAME_APART),
    ("invalid named capture group: (?<!", _LOOKAROUND, _NAME_APART),
    ("invalid perl operator: (?P", _BACKREFERENCE, _SPELL_OUT),
    ("invalid named capture group: (?P=", _BACKREFERENCE, _SPELL_OUT),
    (
        "invalid perl operator: (?>",
        "holds an atomic group ((?>), which is not read here",
        "write (?: ) instead",
    ),
    ("bad repetition operator: ", "repeats a repetition, as ** and ++ do", "write one of the two"),
    ("invalid repetition size: ", *_TOO_OFTEN),
    ("pattern too large", "is too large", "make it smaller"),
    ("missing )", "lacks a )", _ESCAPE_SIGNS),
    ("unexpected )", "has a ) too many", _ESCAPE_SIGNS),
    ("missing ]", "lacks a ]", _ESCAPE_SIGNS),
    ("no argument for repetition operator: *", "repeats nothing with *", "for every name write .*"),
    ("no argument for repetition operator", "repeats nothing", _ESCAPE_SIGNS),
    ("trailing \\", "ends with a backslash", _ESCAPE_SIGNS),
)


class UnreadableRegex(ValueError):
    """The pattern is not accepted; the error says what is wrong with it, and how to write it."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"{what}: {hint}")
        self.what = what
        self.hint = hint


class Regex:
    """Holds a compiled pattern for whole names."""

    __slots__ = ("_capturing", "_compiled", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._compiled = _compiled(pattern, capture=False)
        self._capturing: re2._Regexp | None = None

    @property
    def size(self) -> int:
        """Returns the number of instructions of the compiled pattern: the cost of compiling and matching."""
        return int(self._compiled.programsize)

    @property
    def groups(self) -> int:
        return int(self._groups().groups)

    @property
    def groupindex(self) -> dict[str, int]:
        """Returns the numbers of named groups."""
        return {name.decode(): number for name, number in self._groups().groupindex.items()}

    def matches(self, name: str) -> bool:
        """Returns whether the pattern matches the whole name."""
        return self._compiled.fullmatch(_utf8(name)) is not None

    def captured(self, name: str) -> tuple[str, ...] | None:
        """Returns the texts of all groups, or None where the whole name does not match."""
        match = self._groups().fullmatch(_utf8(name))
        return None if match is None else tuple(_text(part) for part in match.groups(default=b""))

    @property
    def prefix(self) -> str:
        """Returns a text with which every name begins that the pattern matches; it may be empty."""
        low, high = self._compiled.possiblematchrange(_LONGEST_PREFIX)
        shorter = min(len(low), len(high))
        length = next((at for at in range(shorter) if low[at] != high[at]), shorter)
        common: bytes = low[:length]
        try:
            return common.decode()
        except UnicodeDecodeError as cut:  # in the middle of a character
            return common[: cut.start].decode()

    def _groups(self) -> "re2._Regexp":
        if self._capturing is None:
            self._capturing = _compiled(self.pattern, capture=True)
        return self._capturing


@lru_cache(maxsize=512)
def regex(pattern: str) -> Regex:
    """Returns the compiled pattern. Raises UnreadableRegex where the pattern is not accepted."""
    if len(pattern) > LONGEST:
        raise UnreadableRegex(f"is longer than {LONGEST:,} characters", "split it into several patterns")
    _refuse_differences(pattern)
    made = Regex(pattern)
    if pattern.count("(") > MOST_GROUPS and made.groups > MOST_GROUPS:
        raise UnreadableRegex(f"has more than {MOST_GROUPS} groups", "write (?: ) where a group is not used")
    return made


def matches(pattern: str, name: str) -> bool:
    """Returns whether a pattern matches a whole name."""
    return regex(pattern).matches(name)


def _refuse_differences(pattern: str) -> None:
    """Refuses what Python and RE2 read differently, and what only one of them reads without an error."""
    inside = False
    at = 0
    while at < len(pattern):
        match = _DIFFERENT.match(pattern, at)
        if match is None:
            inside = inside and pattern[at] != "]"
            at += 1
            continue
        if (letter := match["escape"]) is not None and letter not in _ESCAPES:
            raise UnreadableRegex(
                f"has the escape \\{letter}, which is not read here",
                "write the sign itself, or a class as [a-z]",
            )
        if match["back"] is not None:
            raise UnreadableRegex(_BACKREFERENCE, _SPELL_OUT)
        if inside and pattern.startswith("[:", at):
            raise UnreadableRegex("has a class by name, as [[:alpha:]]", "write the signs: [A-Za-z]")
        if not inside and match["least"]:
            raise UnreadableRegex(
                f"has {match['least']}, which is read in two ways", f"write {{0{match['least'][1:]}"
            )
        if not inside and match["most"] and int(match["most"].strip("{").rpartition(",")[2][:9]) > 1_000:
            raise UnreadableRegex(*_TOO_OFTEN)
        if match["class"] and not inside:
            inside = True
            at = match.end()
        else:
            at = match.end() if match[0].startswith(("\\", "{")) else at + 1


def _compiled(pattern: str, *, capture: bool) -> "re2._Regexp":
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MEMORY
    options.never_capture = not capture
    try:
        return re2.compile(pattern.encode(), options)
    except UnicodeEncodeError:
        raise UnreadableRegex(
            "holds half of a character (a surrogate)", "write the character itself"
        ) from None
    except re2.error as wrong:
        raise _explained(wrong.args[0]) from None


def _explained(message: object) -> UnreadableRegex:
    text = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
    for begin, what, hint in _SENTENCES:
        if text.startswith(begin):
            return UnreadableRegex(what, hint)
    return UnreadableRegex(f"is not read: {text}", _ESCAPE_SIGNS)


def _utf8(name: str) -> bytes:
    """Encodes the name for RE2. A lone surrogate passes, so that no name from a broker raises an error."""
    return name.encode(errors="surrogatepass")


def _text(part: bytes) -> str:
    return part.decode(errors="surrogatepass")


TOPIC_DENIALS = (r".*[\-\.]internal", r".*\.replica", r"__.*")
GROUP_DENIALS = (r"console-consumer-.*", r"connect-.*", r"__.*")


class SelectionResult(Enum):
    """Lists whether a selection, or a flow with its route, takes a name, and why not."""

    NAMED = "named"  # taken, and written out literally
    MATCHED = "matched"  # taken by a regex
    DENIED = "denied"  # included, and hidden by a default denial alone
    EXCLUDED = "excluded"  # included, and removed by the user's exclude
    RETURNS = "returns"  # included, and copied from a topic of the flow's destination
    OUTSIDE = "outside"  # not included

    @property
    def taken(self) -> bool:
        return self in (SelectionResult.NAMED, SelectionResult.MATCHED)


class SelectionSpec(SpecStruct, frozen=True):
    """Selects names by regexes for whole names.

    It is include, less exclude, less the default denials where they are on.
    """

    include: Annotated[
        tuple[RegexText, ...], Key("Regexes for whole names that are selected.", example="[orders]")
    ] = ()
    exclude: Annotated[
        tuple[RegexText, ...],
        Key(
            "Regexes for whole names that are left out; they win over `include`.",
            example='["payments\\\\.tmp.*"]',
        ),
    ] = ()
    default_exclude: Annotated[
        bool,
        Key(
            "Whether the default denials are on, which hide internal names "
            "([lints.md](lints.md#what-a-flow-takes)). They never hide a name that is written out literally.",
            example="true",
        ),
    ] = True


class Selector:
    """Applies a selection that is compiled once. Build one selector and use it for every name.

    `denials` are the patterns that `default_exclude` adds: for topics or for groups.
    """

    __slots__ = ("_denied", "_exclude", "include", "selection")

    def __init__(self, selection: SelectionSpec, denials: tuple[str, ...] = TOPIC_DENIALS) -> None:
        self.selection = selection
        self.include = NamePatterns(selection.include)
        self._exclude = NamePatterns(selection.exclude)
        self._denied = NamePatterns(denials if selection.default_exclude else ())

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
    """Returns the name that a regex consists of, if it is only a name: `a\\.b`, and also `a.b`."""
    if any(sign[2] for sign in _SIGN.finditer(entry)):
        return None
    return _SIGN.sub(r"\1", entry)


class NamePatterns:
    """Matches a name against many whole-name regexes at once.

    Names that are written out literally are found by a hash lookup, however many there are.
    """

    __slots__ = ("_before_dots", "_dotted", "_exact", "_matches", "patterns", "written_out")

    def __init__(self, entries: Iterable[str]) -> None:
        self._exact: set[str] = set()
        # An unescaped dot matches any character: length → positions of the dots → the names without them.
        self._dotted: dict[int, dict[tuple[int, ...], set[str]]] = {}
        self._before_dots: set[str] = set()
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
                self._before_dots.add(name[: dots[0]])
            else:
                self._exact.add(name)
        self.patterns = tuple(dict.fromkeys(patterns))
        self._matches = tuple(pattern.matches for pattern in self.patterns)
        self.written_out = frozenset(written)

    @property
    def prefixes(self) -> frozenset[str]:
        """Returns texts of which every name that is matched begins with at least one."""
        return frozenset((*self._exact, *self._before_dots, *(pattern.prefix for pattern in self.patterns)))

    def match(self, name: str) -> bool:
        """Returns whether any of the regexes matches the whole name."""
        if name in self._exact:
            return True
        of_length = self._dotted.get(len(name))
        if of_length and any(_without(name, dots) in names for dots, names in of_length.items()):
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
