"""Finds the fields of many JSON values at once. It is pure, and knows flat objects without escapes alone.

Such an object is searched for the quoted names. Where a name occurs once and a colon follows, it names a
member, because no other object is in the text, which is valid JSON. `json_fields` edits every other text, and
gives the same bytes for these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from runtime.batch.arrays import Integers, Octets
from runtime.sql.columns import PADDING, Flags

_QUOTE, _COMMA, _COLON, _OPEN, _CLOSE, _ESCAPE = (ord(one) for one in '",:{}\\')
_LETTERS = 2  # of a name, which are looked for everywhere
_BLANKS = 4  # one after the other; where more stand, the value is edited alone
_REACH = PADDING - 2 * _BLANKS - 2  # bytes: a longer value is edited alone


def _table(characters: str) -> Flags:
    found = np.zeros(256, np.bool_)
    found[[ord(one) for one in characters]] = True
    return found


_BLANK = _table(" \t\r\n")
_ENDS = _table(' \t\r\n,{}[]":')  # of a number or a word


class FlatFields(NamedTuple):
    """The cuts that set or remove fields: for each text and field where it begins and ends.

    Both are the same where a field is not in the text. `found` says which fields are. `flat` says for which
    texts all of this holds; the others are edited one by one.
    """

    flat: Flags
    found: Flags
    begins: Integers
    ends: Integers


def flat_fields(
    data: bytes, begins: Integers, ends: Integers, fields: Sequence[tuple[bytes, bool]]
) -> FlatFields:
    """Returns where the fields stand in the texts of `data`, which ascend.

    At least PADDING bytes of `data` are behind the last text.
    A field is its quoted name, and whether it is removed: the cut then takes the comma before or behind it.
    """
    octets = np.frombuffer(data, np.uint8)
    flat = _flat(octets[: int(ends[-1])], begins, ends)
    quotes = octets == _QUOTE
    cuts = [_cuts(octets, quotes, begins, ends, name, removed) for name, removed in fields]
    for sure, _, _, _ in cuts:
        flat = flat & sure
    found, starts, stops = (np.column_stack(one) for one in list(zip(*cuts, strict=True))[1:])
    return FlatFields(flat, found, starts, stops)


def _flat(octets: Octets, begins: Integers, ends: Integers) -> Flags:
    """Returns which texts have no escape, and one pair of braces alone, which ends with the last byte."""
    special = np.flatnonzero((octets == _OPEN) | (octets == _CLOSE) | (octets == _ESCAPE))
    first = np.searchsorted(special, begins)
    two = np.searchsorted(special, ends) - first == 2
    at = special[np.where(two, first, 0)] if len(special) else np.zeros(len(begins), np.int64)
    found: Flags = two & (octets[at] == _OPEN) & (octets[ends - 1] == _CLOSE)
    return found


def _cuts(
    octets: Octets, quotes: Flags, begins: Integers, ends: Integers, name: bytes, removed: bool
) -> tuple[Flags, Flags, Integers, Integers]:
    """Returns for which texts the field's place is sure, where it is in the text, and its cuts."""
    places = _occurrences(octets, quotes, name, int(ends[-1]))
    places = places[places >= begins[0]]
    owner = np.searchsorted(begins, places, side="right") - 1
    inside = places < ends[owner]
    places, owner = places[inside], owner[inside]
    times = np.bincount(owner, minlength=len(begins))
    found = times == 1
    sure = times <= 1
    starts, stops = ends.copy(), ends.copy()
    at = places[found[owner]]
    good, begin, end, behind = _value(octets, at + len(name))
    if removed:
        good, begin, end = _without_comma(octets, at, good, behind)
    rows = np.flatnonzero(found)
    starts[rows], stops[rows] = begin, end
    sure[rows] &= good
    return sure, found, starts, stops


def _occurrences(octets: Octets, quotes: Flags, name: bytes, end: int) -> Integers:
    """Returns where the quoted name stands: by its quotes and its first letters, and then by all of it."""
    size, last = len(name), max(end - len(name) + 1, 0)
    near = quotes[:last] & quotes[size - 1 : size - 1 + last]
    for place in range(1, min(size - 1, _LETTERS + 1)):
        near &= octets[place : place + last] == name[place]
    places = np.flatnonzero(near)
    for place in range(_LETTERS + 1, size - 1):
        places = places[octets[places + place] == name[place]]
    return places


def _value(octets: Octets, at: Integers) -> tuple[Flags, Integers, Integers, Integers]:
    """Returns where the values behind these names stand, and where a comma or the object's end follows."""
    colon = _skip(octets, at)
    begin = _skip(octets, colon + 1)
    text = octets[begin] == _QUOTE
    near = np.lib.stride_tricks.sliding_window_view(octets, _REACH)[begin + 1]
    marks = near == _QUOTE
    if not text.all():
        marks[~text] = _ENDS[near[~text]]
    end = begin + 1 + marks.argmax(axis=1) + text
    good = (octets[colon] == _COLON) & marks.any(axis=1) & (text | ~_ENDS[octets[begin]])
    end = np.where(good, end, begin)
    behind = _skip(octets, end)
    good &= (octets[behind] == _COMMA) | (octets[behind] == _CLOSE)
    return good, begin, end, behind


def _without_comma(
    octets: Octets, at: Integers, good: Flags, behind: Integers
) -> tuple[Flags, Integers, Integers]:
    """Returns the cuts that remove members whose names begin at `at`, with one of the commas around them."""
    before = at - 1
    for _ in range(_BLANKS):
        before = before - _BLANK[octets[before]]
    good = good & ~_BLANK[octets[before]]
    comma = octets[before] == _COMMA
    more = octets[behind] == _COMMA
    begin = np.where(comma, before, before + 1)
    end = np.where(comma | ~more, behind, behind + 1)
    return good, begin, end


def _skip(octets: Octets, at: Integers) -> Integers:
    """Returns where the next byte stands that is not blank, or the fourth one behind."""
    for _ in range(_BLANKS):
        at = at + _BLANK[octets[at]]
    return at
