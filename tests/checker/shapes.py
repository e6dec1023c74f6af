"""Numbered records of every shape that a copy could get wrong."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from struct import pack
from typing import Any, Final, NamedTuple

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
    json: bool = False  # for a flow with the transform of checker.transformed


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
    size = 0
    if spec.large_every and number % spec.large_every == spec.large_every // 2:
        size = LARGE
    if spec.huge_every and number % spec.huge_every == spec.huge_every // 3:
        size = HUGE
    if spec.json:
        key, value, headers = _json(number, named, size, dice)
    else:
        key, value, headers = dice.choices(_SHAPES, _WEIGHTS)[0](named, dice)
        value = named + _NOISE[: size - len(named)] if size else value
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


def _json(number: int, named: bytes, size: int, dice: random.Random) -> Content:
    """JSON as `json.dumps` writes it, with names and braces where an edit could go wrong."""
    fields: dict[str, Any] = {"id": number + 1, "email": f"{named.decode()}@example.com"}
    fields["country"] = dice.choice(["DE", "DE", "FR", "US", None])
    fields["card"] = dice.choice(["4111 1111", None, 4111, [1, {"email": "inner"}], 'a "quoted" \\ {card'])
    fields["amount"] = number / 8
    fields["note"] = dice.choice(["", "}", 'card: "é"\n', "email", "\x7f\u2028"]) + "x" * size
    match dice.randrange(9):
        case 0:
            fields["email"] = None
        case 1:
            del fields["email"]
        case 2:
            fields = {"more": {"card": [1, {"email": "inner"}]}, **fields}
        case 3:
            fields["address"] = dice.choice(
                [None, {}, {"city": "Berlin"}, {"street": "Mozartstr. 1", "no": 1}]
            )
    text = json.dumps(fields, ensure_ascii=dice.random() < 0.5, indent=dice.choice([None, None, 1]))
    if dice.random() < 0.1:
        text = text.replace('"email": ', ESCAPED_NAME)
    if dice.random() < 0.1:
        between = ",\n " if "\n" in text else ", "
        text = text.replace('"note"', f'"card": "twice"{between}"note"')
    choices: list[tuple[str, bytes | None]] = [("a", None), ("ä", b"\xff"), ("b", b"x" * 90), ("test", None)]
    headers = [dice.choice(choices) for _ in range(dice.choice([0, 0, 1, 4]))]
    if dice.random() < 0.1:
        headers.append(("test", b"1"))
    value = None if dice.random() < 0.1 else text.encode()
    return dice.choice([None, b"", named, b"\xff\xfe"]), value, headers


ESCAPED_NAME: Final = '"em\\u0061il": '
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
