r"""Text from elsewhere → text that is safe to show: what a terminal or a browser would obey is written out.

Names, broker texts and plan files may hold escape sequences, controls of both ranges (C0, C1), line breaks
that forge a line of their own, signs that turn the direction of writing, signs of no width, and halves of
characters.
Each becomes its escape in JSON's form, as \u001b: so a JSON document stays the same document.
"""

import re

# Controls, soft hyphen, fillers, signs of no width, line separators, directions, tags, halves of characters.
UNSHOWABLE = (
    r"\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\uffff\ud800-\udfff\U000e0000-\U000e0fff"
)
_UNSHOWABLE = re.compile(f"[{UNSHOWABLE}]")
_UNSHOWABLE_IN_LINES = re.compile(f"(?![\n\t])[{UNSHOWABLE}]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def one_line(text: str) -> str:
    """The text on one line, with everything unshowable escaped."""
    return _UNSHOWABLE.sub(_escape, text) if not (text.isascii() and text.isprintable()) else text


def lines(text: str) -> str:
    """The text with its line feeds and tabs, everything else that is unshowable escaped."""
    return _UNSHOWABLE_IN_LINES.sub(_escape, text)


def indented(text: str) -> str:
    """The same. Lines after the first begin with a space, so that none passes for a message of its own."""
    first, *others = lines(text).split("\n")
    return "\n".join([first, *(one if one[:1].isspace() or not one else f"  {one}" for one in others)])


def _escape(found: re.Match[str]) -> str:
    sign = found[0]
    if sign in _SHORT:
        return _SHORT[sign]
    units = sign.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
