"""The units of durations and sizes, by which amounts are read, written and shown."""

from types import MappingProxyType
from typing import Final

MILLISECONDS: Final = MappingProxyType(
    {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
)
BYTES: Final = MappingProxyType(
    {
        "B": 1,
        "KB": 10**3,
        "MB": 10**6,
        "GB": 10**9,
        "TB": 10**12,
        "KiB": 2**10,
        "MiB": 2**20,
        "GiB": 2**30,
        "TiB": 2**40,
    }
)
# The units in which amounts are written, the largest first.
DURATIONS = ("d", "h", "m", "s")
DECIMAL = ("GB", "MB", "KB")
BINARY = ("GiB", "MiB", "KiB")


def in_whole(amount: int, *units: str) -> str:
    """Returns `7d`: the amount in the first of these units of which it is a whole number; "" without one.

    0 is a whole number of every unit, so none of them is chosen.
    """
    if not amount:
        return ""
    sizes = ((unit, MILLISECONDS.get(unit) or BYTES[unit]) for unit in units)
    return next((f"{amount // size}{unit}" for unit, size in sizes if amount % size == 0), "")


def duration(ms: int) -> str:
    """Returns `5s` or `90m`, and `1500ms` where no larger unit fits."""
    return in_whole(ms, *DURATIONS) or f"{ms}ms"


def rounded_size(octets: float) -> str:
    """Returns a size with one digit after the point: `1.2 GB`."""
    for unit in ("TB", *DECIMAL):
        if octets >= BYTES[unit]:
            return f"{octets / BYTES[unit]:.1f} {unit}"
    return f"{octets:.0f} B"
