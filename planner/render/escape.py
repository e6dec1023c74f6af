r"""Makes foreign text safe to show: escapes everything that a terminal or a browser would obey.

Names, broker texts and plan files may hold escape sequences, control characters (C0 and C1), line breaks that
forge a line, characters that change the writing direction, zero-width characters, and lone surrogates. Each
becomes its JSON escape, such as \u001b, so a JSON document keeps its meaning.
"""

import re

# Controls, soft hyphen, fillers, zero-width characters, line separators, directions, tags, lone surrogates.
UNSHOWABLE = (
    r"\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\uffff\ud800-\udfff\U000e0000-\U000e0fff"
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
    return "\n".join([first, *(one if one[:1].isspace() or not one else f"  {one}" for one in others)])


def _escape(found: re.Match[str]) -> str:
    sign = found[0]
    if sign in _SHORT:
        return _SHORT[sign]
    units = sign.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
