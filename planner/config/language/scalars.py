"""Parses integers, durations, sizes, rates and timestamps. An error says how to write the value."""

import re
from datetime import datetime
from decimal import Decimal
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
LARGEST = 2**63 - 1
_QUANTITY = re.compile(r"(?P<number>\d{1,19}(?:\.\d{1,9})?) ?(?P<unit>[A-Za-z]+)")
_WHOLE = re.compile(r"-?(?:0|[1-9]\d{0,2}(?:_\d{3})+|[1-9]\d{0,18})")
_ZERO_LED = re.compile(r"-?0\d+")
_OTHER_BASE = re.compile(r"-?0[xob][0-9A-Fa-f_]+")


class NotReadable(ValueError):
    """Text is not what was expected. `what` says why, `hint` how to write it."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


def whole(text: str) -> int:
    """Returns an integer: decimal digits, with `_` between thousands.

    Text that YAML 1.1 and 1.2 read as different numbers is refused.
    """
    if _WHOLE.fullmatch(text):
        return int(text)
    if _ZERO_LED.fullmatch(text):
        raise NotReadable(
            f'"{text}" begins with a zero, which some YAML readers take for octal',
            "write it without the zero",
        )
    if _OTHER_BASE.fullmatch(text):
        raise NotReadable(f'"{text}" is not written in decimal digits', "write it in decimal digits")
    raise NotReadable("not a whole number", "")


def duration(text: str) -> int:
    """Returns the milliseconds of a duration such as `7d`."""
    return _quantity(text, MILLISECONDS, "a duration", "30s", "ms, s, m, h, d or w")


def size(text: str) -> int:
    """Returns the bytes of `10MB` (powers of 1000) or `10MiB` (powers of 1024)."""
    return _quantity(text, BYTES, "a size", "10MB", "B, KB, MB, GB, TB, KiB, MiB, GiB or TiB")


def rate(text: str) -> int:
    """Returns the bytes per second of a rate such as `50MB/s`."""
    amount, slash, per = text.partition("/")
    if not slash or per.strip() != "s":
        raise NotReadable("a rate is a size per second", "write it as 50MB/s")
    return size(amount.strip())


def moment(text: str) -> int:
    """Returns the milliseconds since 1970 of an ISO 8601 time with a zone, or of digits."""
    if text.isascii() and text.isdigit():
        return whole(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise NotReadable("not a time", "write it as 2026-01-01T00:00:00Z") from None
    if when.tzinfo is None:
        raise NotReadable("a time without its zone", 'write the zone: "Z" for UTC, or "+02:00"')
    if when.year < 1970:
        raise NotReadable("a time before 1970", "Kafka's timestamps begin there")
    return round(when.timestamp() * 1000)


def _quantity(text: str, units: MappingProxyType[str, int], what: str, example: str, known: str) -> int:
    found = _QUANTITY.fullmatch(text)
    if found is None:
        if text.isascii() and text.isdigit():
            raise NotReadable(f"{what} without its unit", f"write the unit: {known}")
        raise NotReadable(f"not {what}", f"write it as {example}")
    unit = found["unit"]
    if unit not in units:
        right = next((one for one in units if one.casefold() == unit.casefold()), None)
        hint = f'did you mean "{right}"?' if right else f"the units are {known}"
        raise NotReadable(f'"{unit}" is no unit of {what}', hint)
    amount = Decimal(found["number"]) * units[unit]
    if amount != int(amount):
        raise NotReadable("a fraction that is no whole number of the smallest unit", "use a smaller unit")
    if amount > LARGEST:
        raise NotReadable("more than Kafka can hold", "use a smaller value")
    return int(amount)
