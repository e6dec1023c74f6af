r"""Compiles regexes that users write: RE2 matches them in time linear in the name, for any pattern.

The language is what Python's `re` and RE2 read alike, so that a pattern of an older topology keeps its
meaning. Each difference is refused with the way to write it. Lookaround, backreferences, possessive and
atomic groups have no linear match. `{,3}`, `[[:alpha:]]`, `\Q…\E` and `\C` are read by only one of the two
engines, or differently by each. docs/internals/regex.md lists them.
"""

import re
from functools import lru_cache

import re2

LONGEST = 1_000  # characters of one pattern
MOST_GROUPS = 50
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
        found = self._groups().fullmatch(_utf8(name))
        return None if found is None else tuple(_text(part) for part in found.groups(default=b""))

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
        found = _DIFFERENT.match(pattern, at)
        if found is None:
            inside = inside and pattern[at] != "]"
            at += 1
            continue
        if (letter := found["escape"]) is not None and letter not in _ESCAPES:
            raise UnreadableRegex(
                f"has the escape \\{letter}, which is not read here",
                "write the sign itself, or a class as [a-z]",
            )
        if found["back"] is not None:
            raise UnreadableRegex(_BACKREFERENCE, _SPELL_OUT)
        if inside and pattern.startswith("[:", at):
            raise UnreadableRegex("has a class by name, as [[:alpha:]]", "write the signs: [A-Za-z]")
        if not inside and found["least"]:
            raise UnreadableRegex(
                f"has {found['least']}, which is read in two ways", f"write {{0{found['least'][1:]}"
            )
        if not inside and found["most"] and int(found["most"].strip("{").rpartition(",")[2][:9]) > 1_000:
            raise UnreadableRegex(*_TOO_OFTEN)
        if found["class"] and not inside:
            inside = True
            at = found.end()
        else:
            at = found.end() if found[0].startswith(("\\", "{")) else at + 1


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
