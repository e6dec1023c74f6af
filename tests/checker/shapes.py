"""Numbered records of every shape that a copy could get wrong."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from struct import pack
from typing import Final, NamedTuple

Headers = list[tuple[str, bytes | None]]

TOPIC_CONFIG: Final = {
    "max.message.bytes": "8000000",
    "retention.ms": "-1",
    "message.timestamp.before.max.ms": str(2**63 - 1),
}
LARGE: Final = 900_000
HUGE: Final = 5_000_000
PAST: Final = 1_500_000_000_000
_NOISE: Final = random.Random(0).randbytes(HUGE)


@dataclass(frozen=True, slots=True)
class Spec:
    """What to write. The same spec gives the same records."""

    records: int = 2000
    seed: int = 1
    first: int = 0  # the number of the first record; a second write to a topic goes on from there
    producers: int = (
        8  # they take turns through all kinds: five codecs, tiny batches, transactions with aborts
    )
    rate: float | None = None  # records per second, all together
    large_every: int = 500  # 900 KB; 0: never
    huge_every: int = 0  # 5 MB; needs TOPIC_CONFIG on both sides
    keyed: bool = False  # compacted topics refuse null keys


class Shaped(NamedTuple):
    number: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def shaped(number: int, spec: Spec) -> Shaped:
    """Record `number`. Its timestamp is its own, so that even records without content can be told apart."""
    dice = random.Random(f"{spec.seed}/{number}")
    timestamp = PAST + (number ^ 5) * 1009 + dice.randrange(1000)
    named = b"%d/%d" % (spec.seed, number)
    key, value, headers = dice.choices(_SHAPES, _WEIGHTS)[0](named, dice)
    if spec.large_every and number % spec.large_every == spec.large_every // 2:
        value = named + _NOISE[: LARGE - len(named)]
    if spec.huge_every and number % spec.huge_every == spec.huge_every // 3:
        value = named + _NOISE[: HUGE - len(named)]
    if spec.keyed and key is None:
        key = named
    return Shaped(number, timestamp, key, value, headers)


Content = tuple[bytes | None, bytes | None, Headers]


def _plain(named: bytes, dice: random.Random) -> Content:
    return (
        b"key-%d" % dice.randrange(50),
        named + b' {"amount": %d}' % dice.randrange(10**6) * dice.randrange(1, 40),
        [],
    )


def _noisy(named: bytes, dice: random.Random) -> Content:
    at = dice.randrange(100_000)
    return named, _NOISE[at : at + dice.randrange(3000)], []


def _tombstone(named: bytes, dice: random.Random) -> Content:
    return named, None, []


def _keyless(named: bytes, dice: random.Random) -> Content:
    return None, named, []


def _empty(named: bytes, dice: random.Random) -> Content:
    return b"", b"", []


def _nothing(named: bytes, dice: random.Random) -> Content:
    return None, None, []


def _headed(named: bytes, dice: random.Random) -> Content:
    values: list[bytes | None] = [None, b"", named, b"x" * dice.randrange(200)]
    headers = [
        (dice.choice(["trace", "a", "ä", ""]), dice.choice(values)) for _ in range(dice.randrange(1, 120))
    ]
    return dice.choice([None, b"", named]), dice.choice([None, b"", named]), headers


_SHAPES: Final[list[Callable[[bytes, random.Random], Content]]] = [
    _plain, _noisy, _tombstone, _keyless, _empty, _nothing, _headed,
]  # fmt: skip
_WEIGHTS: Final = [40, 20, 8, 8, 4, 4, 16]


def digest(timestamp: int | None, key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """All of a record in 16 bytes; null is not empty. Without its timestamp: its content."""
    whole = blake2b(pack(">q", -2 if timestamp is None else timestamp), digest_size=16)
    parts = [key, value]
    for name, content in headers:
        parts += (name.encode(), content)
    for part in parts:
        whole.update(pack(">i", -1 if part is None else len(part)))
        whole.update(part or b"")
    return whole.digest()
