"""Defines the request and the outcome of the check of transforms: files of JSON. It is pure."""

from __future__ import annotations

import msgspec

from runtime.contract.spec.transform import TransformSpec


class CheckRequest(msgspec.Struct, frozen=True):
    """Holds the transforms to check, by the names of their flows."""

    transforms: dict[str, TransformSpec]


class TransformProblem(msgspec.Struct, frozen=True):
    """Describes what Spark refuses: `part` is the key of the transform, and `line` and `column` are in it.

    They are 0 where Spark names no place.
    """

    flow: str
    part: str
    why: str
    line: int = 0
    column: int = 0


class CheckOutcome(msgspec.Struct, frozen=True):
    problems: list[TransformProblem]


def encode(message: CheckRequest | CheckOutcome) -> bytes:
    return msgspec.json.encode(message)


def decode_request(text: bytes) -> CheckRequest:
    return msgspec.json.decode(text, type=CheckRequest)


def decode_outcome(text: bytes) -> CheckOutcome:
    return msgspec.json.decode(text, type=CheckOutcome)
