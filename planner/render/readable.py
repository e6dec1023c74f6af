"""Makes values readable at a glance, and foreign text safe to show. Pure.

Numbers, times and sparklines are short. Everything in a text that a terminal or a browser would obey is
escaped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from planner.model.times import ISO, utc
from runtime.contract.spec.units import rounded_size

# Controls, soft hyphen, fillers and blanks, zero-width characters, line separators, directions, variation
# selectors, tags, lone surrogates, and all other characters that format the text around them.
UNSHOWABLE = (
    r"\x00-\x1f\x7f-\x9f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    r"\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\uffff"
    r"\ud800-\udfff\U000110bd\U000110cd\U00013430-\U0001343f\U00016fe4\U0001bca0-\U0001bca3\U0001d159"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_UNSHOWABLE = re.compile(f"[{UNSHOWABLE}]")
_UNSHOWABLE_IN_LINES = re.compile(f"(?![\n\t])[{UNSHOWABLE}]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def one_line(text: str) -> str:
    """Returns the text on one line, with everything unsafe escaped."""
    return _UNSHOWABLE.sub(_escape, text) if not (text.isascii() and text.isprintable()) else text


def lines(text: str) -> str:
    """Returns the text with its line feeds and tabs, and everything else that is unsafe escaped."""
    return _UNSHOWABLE_IN_LINES.sub(_escape, text)


def indented(text: str) -> str:
    """Returns the same with indented further lines, so that none looks like a separate message."""
    first, *others = lines(text).split("\n")
    return "\n".join(
        [first, *(other if other[:1].isspace() or not other else f"  {other}" for other in others)]
    )


def _escape(match: re.Match[str]) -> str:
    sign = match[0]
    if sign in _SHORT:
        return _SHORT[sign]
    units = sign.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


UNKNOWN = "–"
_BARS = "▁▂▃▄▅▆▇█"
_MANY = ((1e12, "T"), (1e9, "G"), (1e6, "M"))
LARGEST = 1 << 63  # of what is counted and measured; JSON may hold any number, and a float can't


def count(number: int | None) -> str:
    """Returns `12,345` or `12.3 M`; what only a forged record says as it is."""
    if number is None:
        return UNKNOWN
    if number > LARGEST:
        return f"{number:,}"
    for size, word in _MANY:
        if number >= 10 * size:
            return f"{number / size:,.1f} {word}"
    return f"{number:,}"


def octets(number: float | None) -> str:
    """Returns `1.2 MB`, in powers of 1000 as in a topology."""
    if number is None:
        return UNKNOWN
    return rounded_size(number)


def per_second(records: float | None) -> str:
    """Returns `1,204/s`; below ten with one decimal."""
    if records is None:
        return UNKNOWN
    return f"{records:.1f}/s" if 0 < records < 10 else f"{count(round(records))}/s"


def span(ms: float | None) -> str:
    """Returns `12 ms`, `0.3 s`, `41 s`, `4 min`, `3 h` or `2 d`; what only a forged time gives as it is."""
    if ms is None:
        return UNKNOWN
    if abs(ms) > LARGEST:
        return f"{ms} ms"
    if ms < 100:
        return f"{ms:.0f} ms" if ms else "0 s"
    seconds = ms / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    for size, word in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {word}"
    return f"{seconds:.0f} s"


def latency(ms: float | None) -> str:
    """Returns a latency. Above the highest bucket only `>` and its bound are known."""
    from runtime.contract.records.latency import LATENCY_BOUNDS_MS

    if ms is None:
        return UNKNOWN
    return f"{'>' if ms >= LATENCY_BOUNDS_MS[-1] else ''}{span(max(ms, 1))}"


def iso_time(ms: int) -> str:
    """Returns `2026-11-21T04:26:18Z`."""
    return utc(ms, ISO)


def moment(ms: int | None) -> str:
    """Returns `2026-11-21 04:26:18Z`."""
    if ms is None:
        return UNKNOWN
    return utc(ms)


_SPARKLINE = 20  # values


def sparkline(values: Sequence[float | None]) -> str:
    """Returns a sparkline, the newest value at the right; a space where the value is unknown."""
    shown = list(values)[-_SPARKLINE:]
    top = max((value for value in shown if value is not None), default=0)
    bars = ""
    for value in shown:
        if value is None:
            bars += " "
        else:
            height = int(value / top * len(_BARS)) if top > 0 and value > 0 else 0
            bars += _BARS[min(height, len(_BARS) - 1)]
    return bars.rjust(_SPARKLINE)


def plural(number: int, word: str) -> str:
    """Returns `1 flow` or `1,234 flows`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"
