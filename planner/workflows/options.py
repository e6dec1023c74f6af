"""How a field of a request is written on the command line: as an `Option` or an `Argument` in its annotation.

The text of a value is read by the option's `kind`. This module loads nothing that runs behind a workflow,
because `--help` imports it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Struct


class TextFormat(NamedTuple):
    """How a text becomes a value, and a default value its text. `read` raises ValueError with the reason."""

    name: str
    read: Callable[[str], Any]
    text: Callable[[Any], str] = str


class Value(Struct, frozen=True, kw_only=True):
    """What the command line says of a field. The type of the field decides how many values it takes.

    `least` and `most` bound a number. `path` says what a path must be, `exists` that something is there.
    `fills`: the value is a tuple, and these fields of the request take its parts.
    """

    kind: TextFormat | None = None
    choices: tuple[str, ...] = ()
    least: Any = None
    most: Any = None
    path: Literal["any", "file", "folder"] = "any"
    exists: bool = False
    fills: tuple[str, ...] = ()


class Argument(Value, frozen=True):
    """An argument of a command, in the order of the fields. With a default it may be left out."""

    metavar: str | None = None


class Option(Value, frozen=True):
    """An option of a command. A flag whose field is True by default turns it off.

    `variable` is an environment variable with the value. A `hidden` option is not in the help.
    """

    flag: str
    help: str
    metavar: str | None = None
    variable: str | None = None
    hidden: bool = False


class TopologyArgument(Struct, frozen=True):
    """The last argument, `[PATH]`, which `--path PATH` may name as well: a topology's file or folder."""


def _scalar(name: Literal["duration", "rate", "moment"], text: str) -> int:
    from planner.config.language import scalars

    read = {"duration": scalars.duration, "rate": scalars.rate, "moment": scalars.moment}[name]
    try:
        return read(text)
    except scalars.NotReadable as wrong:
        what = "no rate" if name == "rate" else wrong.what
        raise ValueError(f"is {what}: {wrong.hint}") from None


def _duration_text(milliseconds: int) -> str:
    if milliseconds % 1_000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    if rest or minutes < 2:
        return f"{milliseconds // 1_000}s"
    return f"{minutes}m" if minutes % 60 else f"{minutes // 60}h"


def _pattern(text: str) -> str:
    from runtime.contract.spec.selection import UnreadableRegex, regex

    try:
        return regex(text).pattern
    except UnreadableRegex as wrong:
        raise ValueError(f"is no regular expression that is read here: it {wrong}") from None


def _percent(text: str) -> float:
    try:
        share = float(text.removesuffix("%"))
    except ValueError:
        share = 0.0
    if not 0 < share <= 100:
        raise ValueError("is no share: write it as 5%")
    return share


def _offset_range(text: str) -> tuple[int | None, int | None, int | None]:
    """Returns the first offset, the end, and the number of the last offsets."""
    low, colon, high = text.partition(":")
    if low == "last" and high.isdecimal():
        return None, None, int(high)
    if not colon or not all(not bound or bound.isdecimal() for bound in (low, high)):
        raise ValueError("is none of FROM:TO, FROM:, :TO, last:N")
    if low and high and int(low) >= int(high):
        raise ValueError("is none of FROM:TO, FROM:, :TO, last:N")
    return int(low) if low else None, int(high) if high else None, None


# In milliseconds, as in a topology: 60s.
DURATION = TextFormat("duration", lambda text: _scalar("duration", text), _duration_text)
# In bytes per second, as in a topology: 50MB/s.
RATE = TextFormat("rate", lambda text: _scalar("rate", text), lambda octets: f"{octets // 1_000_000}MB/s")
# In milliseconds since 1970, as in a topology: 2026-01-31T23:59:59Z.
MOMENT = TextFormat("time", lambda text: _scalar("moment", text))
# A regular expression in the syntax of a topology.
PATTERN = TextFormat("regex", _pattern)
# 5%; the sign may be left out.
PERCENT = TextFormat("percent", _percent, lambda share: f"{share:g}%")
# FROM:TO, either may be left out, or last:N.
OFFSET_RANGE = TextFormat("range", _offset_range)

# Options of several requests.
Timeout = Annotated[
    int,
    Option(
        "--timeout",
        "How long a cluster may keep silent before it counts as unreachable.",
        "DURATION",
        kind=DURATION,
    ),
]
CopiedWithin = Annotated[
    int, Option("--timeout", "How long to wait until everything is copied.", "DURATION", kind=DURATION)
]
Policies = Annotated[
    tuple[Path, ...],
    Option(
        "--policy",
        "A file with rules of the operator, beside those of the topology; repeatable. REPL_POLICY names files"
        " for every command.",
        "FILE",
    ),
]
Targets = Annotated[
    tuple[str, ...],
    Option(
        "--target",
        "Only this object and what it needs, for example topic.dc1.orders; repeatable.",
        "ADDRESS",
    ),
]
Flow = Annotated[str, Argument()]
Cluster = Annotated[str, Argument()]
