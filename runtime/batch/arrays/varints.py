"""This module reads and writes varints of many records as numpy arrays; `varint` handles one number.

Irregular input raises IrregularError, and bytes that end too soon raise IndexError: the caller then handles
the records one by one, and so also finds the reason.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]

LONGEST_ENCODED: Final = 10


class IrregularError(Exception):
    """The records can't be handled as arrays."""


def read_varints(octets: Octets, at: Integers, most: int) -> tuple[Integers, Integers]:
    """Returns the signed numbers at these places, and where they end."""
    octet = octets[at].astype(np.int64)
    value, at = octet & 0x7F, at + 1
    more = octet > 0x7F
    for place in range(1, most + 1):
        if not more.any():
            return (value >> 1) ^ -(value & 1), at
        octet = np.where(more, octets[at], 0).astype(np.int64)
        value |= (octet & 0x7F) << 7 * place
        at = at + more
        more = octet > 0x7F
    raise IrregularError


def skip_varints(octets: Octets, at: Integers) -> Integers:
    """Returns where the varints at these places end. Raises IrregularError for one that is too long."""
    at = at + 1
    more = octets[at - 1] > 0x7F
    for _ in range(LONGEST_ENCODED):
        if not more.any():
            return at
        at = at + more
        more &= octets[at - 1] > 0x7F
    raise IrregularError


def varint_widths(zigzag: Integers) -> Integers:
    """Returns how many bytes each number takes as a varint."""
    widths = np.ones(len(zigzag), np.int64)
    rest = zigzag >> 7
    while rest.any():
        if (rest < 0).any():  # a difference of timestamps that no clock makes
            raise IrregularError
        widths += rest > 0
        rest = rest >> 7
    return widths


def put_varints(flat: Octets, at: Integers, zigzag: Integers) -> Integers:
    """Writes the numbers as varints and returns where they end."""
    after = at + 1
    which = np.arange(len(at))
    while True:
        rest = zigzag >> 7
        flat[at] = (zigzag & 0x7F) | ((rest > 0) << 7)
        longer = np.flatnonzero(rest)
        if not len(longer):
            return after
        which, at, zigzag = which[longer], at[longer] + 1, rest[longer]
        after[which] += 1
