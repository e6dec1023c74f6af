"""Defines which functions an expression of a transform may call, with which arguments.

The table is an allow-list: a function that is not in it is refused before Spark analyzes anything. A function
belongs in it if its result depends on its arguments alone, if it reads nothing else, and if its time and the
size of its result are bounded by those of its arguments. docs/transform.md shows the table.

The names of arguments in a signature are a rule where `LITERALS` has them: such an argument is a literal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from re import _parser  # type: ignore[attr-defined]  # it has no public name
from typing import Any, NamedTuple

from runtime.contract.spec.selection import UnreadableRegex, regex, written_out

LONGEST_TEXT = 10_000  # characters of one expression
MOST_NODES = 2_000  # of the tree that it is parsed to
DEEPEST = 100  # nodes or brackets within one another
MOST_TIMES = 64  # how many times as long as a record what is made of it may be
MOST_CHARACTERS = 64 << 10  # of what is made of literals alone
_LARGEST_PATTERN = 2_000  # instructions of RE2
LONGEST_QUADRATIC = 4_096  # characters of a text in which a regex is replaced that may need quadratic time
_LONGEST_SEQUENCE = 1_001  # items
_LONGEST_NUMBER = 500  # characters of the largest DOUBLE, with its commas and places
_WIDEST_PART = 200  # characters of what a regex matches beside repetitions of one character


class RefusedExpression(ValueError):
    """An expression, or a schema, that no transform may have. `line` and `column` are 0 where unknown."""

    def __init__(self, why: str, line: int = 0, column: int = 0) -> None:
        super().__init__(why)
        self.line = line
        self.column = column


class Size(NamedTuple):
    """Bounds the size of a result: so many times that of the record, and so many characters more."""

    times: float = 0
    characters: float = 0

    def __add__(self, other: Size) -> Size:  # type: ignore[override]
        return Size(self.times + other.times, self.characters + other.characters)

    def multiplied(self, factor: float) -> Size:
        return Size(self.times * factor, self.characters * factor)

    @property
    def bounded(self) -> bool:
        return self.times <= MOST_TIMES and self.characters <= MOST_CHARACTERS


SMALL = Size(0, 40)  # a number, a time, a boolean


def _whole(least: int, most: int) -> Callable[[object], str]:
    def rule(value: object) -> str:
        fits = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        return "" if fits else f"a whole number from {least} to {most:,}"

    return rule


def _text(most: int) -> Callable[[object], str]:
    def rule(value: object) -> str:
        return "" if isinstance(value, str) and len(value) <= most else f"a text of at most {most} characters"

    return rule


def _matching(pattern: str, what: str) -> Callable[[object], str]:
    compiled = re.compile(pattern)

    def rule(value: object) -> str:
        return "" if isinstance(value, str) and compiled.fullmatch(value) else what

    return rule


def _one_of(*choices: object) -> Callable[[object], str]:
    def rule(value: object) -> str:
        kept = value.upper() if isinstance(value, str) else value
        return (
            ""
            if kept in choices and not isinstance(value, bool)
            else f"one of {', '.join(map(str, choices))}"
        )

    return rule


def _delimiter(value: object) -> str:
    plain = isinstance(value, str) and bool(value) and written_out(value) is not None
    return "" if plain else "a plain text, with a backslash before each sign of a regex"


def _pattern(value: object) -> str:
    if not isinstance(value, str):
        return "a regex"
    try:
        read = regex(value)
    except UnreadableRegex as error:
        return f"a regex that RE2 reads: this one {error}"
    if read.size > _LARGEST_PATTERN:
        return f"a smaller regex: this one has {read.size:,} instructions, and {_LARGEST_PATTERN:,} are taken"
    return ""


def _initial_value(value: object) -> str:
    length = len(value.encode()) if isinstance(value, str) else len(value) if isinstance(value, bytes) else 0
    return "" if length in (12, 16) else "12 bytes for GCM or 16 bytes for CBC, as X'…'"


_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DAYOFWEEK", "DOW", "DOY", "HOUR", "MINUTE", "SECOND")
_SMALL_UNITS = ("MILLISECOND", "MICROSECOND")
_PLURALS = ("YEARS", "MONTHS", "WEEKS", "DAYS", "HOURS", "MINUTES", "SECONDS")

# By the name of an argument: what a literal there must be, as a function that names it where it is not.
LITERALS: dict[str, Callable[[object], str]] = {
    "bits": _one_of(0, 224, 256, 384, 512),
    "charset": _one_of("UTF-8", "US-ASCII", "ISO-8859-1", "UTF-16", "UTF-16BE", "UTF-16LE"),
    "count": _whole(0, 1_000),
    "delimiter": _delimiter,
    "fill": _text(10),
    "format": _matching(
        r"[yMdHhmsSaEQDXxZ'T\-/:., ]{1,50}",
        "a format of at most 50 of y M d H h m s S a E Q D X x Z and signs",
    ),
    "iv": _initial_value,
    "mode": _one_of("GCM", "CBC"),
    "name": _text(200),
    "padding": _one_of("DEFAULT", "PKCS", "NONE"),
    "part": _one_of("HOST", "PATH", "QUERY", "REF", "PROTOCOL", "FILE", "AUTHORITY", "USERINFO"),
    "path": _matching(r"\$[\w.\[\]'$\-]{0,200}", "a path such as $.home.city"),
    "pattern": _pattern,
    "places": _whole(-38, 38),
    "replacement": _text(100),
    "schema": _text(LONGEST_TEXT),
    "search": _matching(r"(?s).+", "a text that is not empty"),
    "separator": _text(10),
    "sign": lambda value: "" if value is None else _text(1)(value),
    "unit": _one_of(*_UNITS, *_SMALL_UNITS, *_PLURALS, "YY", "YYYY", "MM", "MON", "DD"),
    "word": _matching(r"[\w\-]{1,100}", "a word of letters, digits, _ and -"),
}

# By heading: signatures. `[x]` may be left out, `...` repeats the argument before it.
TABLE: dict[str, str] = {
    "Conditions and nulls": """
        between(x, low, high) coalesce(x, ...) contains(x, y) endswith(x, y) if(condition, x, y) ifnull(x, y)
        isnan(x) isnotnull(x) isnull(x) nanvl(x, y) nullif(x, y) nvl(x, y) nvl2(x, y, z) startswith(x, y)
    """,
    "Text": """
        ascii(x) base64(x) bit_length(x) btrim(x, [y]) char(n) char_length(x) character_length(x) chr(n)
        concat(x, ...) concat_ws(separator, x, ...) decode(x, charset) encode(x, charset)
        format_number(x, places) hex(x) initcap(x) instr(x, y) lcase(x) left(x, n) len(x) length(x)
        locate(x, y, [n]) lower(x) lpad(x, count, [fill]) ltrim(x) mask(x, [sign], [sign], [sign], [sign])
        octet_length(x) overlay(x, y, n, [n]) parse_url(x, part, [word]) position(x, y, [n])
        repeat(fill, count) replace(x, search, [replacement]) reverse(x) right(x, n) rpad(x, count, [fill])
        rtrim(x) soundex(x) space(count) split(x, delimiter, [n]) split_part(x, separator, n)
        substr(x, n, [n]) substring(x, n, [n]) substring_index(x, separator, n) translate(x, y, z) trim(x)
        ucase(x) unbase64(x) unhex(x) upper(x) url_decode(x) url_encode(x)
    """,
    "Regexes": """
        regexp(x, pattern) regexp_extract(x, pattern, [count]) regexp_like(x, pattern)
        regexp_replace(x, pattern, replacement) rlike(x, pattern)
    """,
    "Hashes and encryption": """
        aes_encrypt(x, key, mode, padding, iv, [aad]) crc32(x) hash(x, ...) md5(x) sha(x) sha1(x)
        sha2(x, bits) xxhash64(x, ...)
    """,
    "Numbers": """
        abs(x) bigint(x) bin(x) boolean(x) bround(x, [places]) ceil(x, [places]) ceiling(x, [places])
        double(x) exp(x) float(x) floor(x, [places]) greatest(x, y, ...) int(x) least(x, y, ...) ln(x)
        log10(x) log2(x) mod(x, y) negative(x) pmod(x, y) positive(x) pow(x, y) power(x, y) round(x, [places])
        sign(x) signum(x) smallint(x) sqrt(x) tinyint(x) try_add(x, y) try_divide(x, y) try_multiply(x, y)
        try_subtract(x, y)
    """,
    "Dates and times": """
        add_months(x, n) date(x) date_add(x, n) date_diff(x, y) date_format(x, format) date_part(unit, x)
        date_sub(x, n) date_trunc(unit, x) datediff(x, y) datepart(unit, x) day(x) dayofmonth(x) dayofweek(x)
        dayofyear(x) extract(unit, x) from_unixtime(x, format) hour(x) last_day(x) make_date(x, y, z)
        minute(x) month(x) months_between(x, y) quarter(x) second(x) timestamp_micros(x) timestamp_millis(x)
        timestamp_seconds(x) to_date(x, format) to_timestamp(x, format) to_unix_timestamp(x, format)
        trunc(x, unit) try_to_timestamp(x, format) unix_date(x) unix_micros(x) unix_millis(x) unix_seconds(x)
        unix_timestamp(x, format) weekday(x) weekofyear(x) year(x)
    """,
    "Structs, arrays, maps, JSON": """
        array(x, ...) array_compact(x) array_contains(x, y) array_join(x, separator, [fill]) array_max(x)
        array_min(x) array_position(x, y) array_remove(x, y) cardinality(x) element_at(x, y) exists(x, lambda)
        filter(x, lambda) flatten(x) forall(x, lambda) from_json(x, schema) get(x, y) get_json_object(x, path)
        map(x, y, ...) map_contains_key(x, y) map_keys(x) map_values(x) named_struct(name, x, ...)
        sequence(count, count) size(x) slice(x, n, n) sort_array(x, [y]) string(x) struct(x, ...) to_json(x)
        transform(x, lambda) try_element_at(x, y)
    """,
}
_OF_BOUNDED_SIZE = frozenset({"Conditions and nulls", "Hashes and encryption", "Numbers", "Dates and times"})
# Functions whose results are longer or shorter than those of others under their heading.
_TIMES: dict[str, float] = {
    **dict.fromkeys(
        ("coalesce", "if", "ifnull", "nanvl", "nullif", "nvl", "nvl2", "greatest", "least", "trim"), 1
    ),
    **dict.fromkeys(("ascii", "bit_length", "char", "char_length", "character_length", "chr", "instr"), 0),
    **dict.fromkeys(("len", "length", "locate", "octet_length", "position", "regexp", "regexp_like"), 0),
    **dict.fromkeys(("rlike", "array_contains", "array_position", "cardinality", "exists", "forall"), 0),
    **dict.fromkeys(("map_contains_key", "size", "soundex"), 0),
    **dict.fromkeys(("aes_encrypt", "base64", "bin", "hex", "encode"), 2),
    "url_encode": 3,
    "to_json": 6,  # escapes
    "mask": 2,
}


@dataclass(frozen=True, slots=True)
class Function:
    """A function that expressions may call.

    `arguments` are the names of its arguments, and `least` of them are needed. `repeats` says that the last
    ones may be given again. `times` is how many times as long as its arguments the result may be, 0 where its
    size is that of a number.
    """

    name: str
    signature: str
    arguments: tuple[str, ...]
    least: int
    repeats: bool
    times: float

    def problem(self, given: int) -> str:
        """Returns what is wrong with a number of arguments; nothing where it is right."""
        if given < self.least or (given > len(self.arguments) and not self.repeats):
            return f"{self.name} is called with {given} arguments, and it is {self.signature}"
        return ""

    def rule(self, at: int) -> tuple[str, Callable[[object], str]] | None:
        """Returns the rule of a literal at this place, with the name of the argument."""
        names = self.arguments
        if at >= len(names):
            again = 2 if self.name == "named_struct" else 1
            at = len(names) - again + (at - len(names)) % again
        rule = LITERALS.get(names[at])
        return (names[at], rule) if rule is not None else None

    def size(self, sizes: Sequence[Size], literals: Sequence[object]) -> Size:
        """Returns how large the result may be."""
        together = sum(sizes, Size())
        match self.name:
            case "repeat":
                return Size(0, len(str(literals[0])) * _number(literals[1]))
            case "sequence":
                return Size(0, 5 * _LONGEST_SEQUENCE)
            case "format_number":
                return Size(0, _LONGEST_NUMBER)
            case "space":
                return Size(0, _number(literals[0]))
            case "lpad" | "rpad":
                return together + Size(0, _number(literals[1]))
            case "replace":
                replacement = len(str(literals[2])) if len(literals) > 2 else 0
                return sizes[0].multiplied(max(1, replacement / len(str(literals[1]))))
            case "regexp_replace":
                return sizes[0].multiplied(1 + len(str(literals[2]))) + Size(0, len(str(literals[2])))
            case "concat_ws":
                return together.multiplied(1 + len(str(literals[0])))
            case "array_join":
                return together.multiplied(1 + sum(len(str(literal)) for literal in literals[1:]))
            case "transform":
                # The result of the lambda stands there once for each item, and an item takes two characters.
                return sizes[0].multiplied(sizes[1].times + sizes[1].characters)
        return together.multiplied(self.times) if self.times else SMALL


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


_SIGNATURE = re.compile(r"(\w+)\(([^)]*)\)")


@cache
def functions() -> dict[str, Function]:
    """Returns the functions of the table by name."""
    by_name: dict[str, Function] = {}
    for heading, text in TABLE.items():
        for name, inside in _SIGNATURE.findall(text):
            arguments = [argument.strip() for argument in inside.split(",")]
            repeats = arguments[-1] == "..."
            named = [argument for argument in arguments if argument != "..."]
            by_name[name] = Function(
                name,
                f"{name}({inside})",
                tuple(argument.strip("[]") for argument in named),
                sum(not argument.startswith("[") for argument in named),
                repeats,
                _TIMES.get(name, 0 if heading in _OF_BOUNDED_SIZE else 1),
            )
    return by_name


def documentation() -> str:
    """Returns the table as docs/transform.md shows it."""
    lines = ["| | functions |", "| --- | --- |"]
    for heading, text in TABLE.items():
        signatures = " ".join(f"`{name}({inside})`" for name, inside in _SIGNATURE.findall(text))
        lines.append(f"| {heading} | {signatures} |")
    return "\n".join(lines) + "\n"


_CHARACTERS = frozenset((_parser.ANY, _parser.IN, _parser.LITERAL, _parser.NOT_LITERAL))
_REPEATS = frozenset((_parser.MAX_REPEAT, _parser.MIN_REPEAT))


def replaces_in_linear_time(pattern: str) -> bool:
    """Returns whether all matches of a regex are certainly found in time linear in the text.

    RE2 finds one match in linear time. It may read far beyond it, up to where a better one could end, and do
    so again for the next match: `a.*b|a` in a text of `a` alone. That does not happen where each unbounded
    repetition is one of a single character, and no part of an alternative or of another repetition. A match
    within the text that such a repetition has read would be an end of the better match, too.
    """
    try:
        tree = _parser.parse(pattern)
    except re.error:
        return False
    several_lines = re.search(r"\(\?[a-zA-Z-]*m", pattern) is not None
    parts = list(_parts(tree))
    if not several_lines and parts[:1] in (
        [(_parser.AT, _parser.AT_BEGINNING)],
        [(_parser.AT, _parser.AT_BEGINNING_STRING)],
    ):
        return True  # there is one match
    width = 0
    for kind, arguments in parts:
        if kind in _REPEATS and arguments[1] == _parser.MAXREPEAT and _is_character(arguments[2]):
            continue
        width += _parser.SubPattern(tree.state, [(kind, arguments)]).getwidth()[1]
    return width <= _WIDEST_PART


def _parts(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yields the parts of a parsed regex that follow each other, those of groups included."""
    for kind, arguments in tree:
        if kind is _parser.SUBPATTERN:
            yield from _parts(arguments[-1])
        else:
            yield kind, arguments


def _is_character(tree: Any) -> bool:
    inner = list(_parts(tree))
    return len(inner) == 1 and inner[0][0] in _CHARACTERS


_REFERENCE = re.compile(r"\$(\d+)|\\[$\\]|[^$\\]")


def replacement_problem(pattern: str, replacement: str) -> str:
    """Returns what is wrong with the replacement of a regex; nothing where it is right."""
    groups, at = regex(pattern).groups, 0
    while at < len(replacement):
        reference = _REFERENCE.match(replacement, at)
        if reference is None:
            return "a $ in a replacement names a group, as $1: write \\$ for the sign itself"
        if reference[1] is not None and int(reference[1][:9]) > groups:
            return f"the replacement names the group {reference[1]}, and the regex has {groups}"
        at = reference.end()
    return ""


def like_regex(pattern: str, escape: str = "\\") -> str | None:
    """Returns the regex of a pattern of LIKE; None where `escape` stands before a sign without a meaning."""
    made: list[str] = []
    at = 0
    while at < len(pattern):
        sign = pattern[at]
        if sign == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in (escape, "%", "_"):
                return None
            made.append(_literal(pattern[at]))
        else:
            made.append({"%": "(?s:.*)", "_": "(?s:.)"}.get(sign) or _literal(sign))
        at += 1
    return "".join(made)


def _literal(sign: str) -> str:
    return (
        sign if sign.isalnum() or sign == "_" or ord(sign) > 127 else f"\\{sign}" if sign != "\0" else "\\x00"
    )
