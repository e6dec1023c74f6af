"""Defines the requests to Spark about transforms, and their outcomes: files of JSON. It is pure."""

from __future__ import annotations

import msgspec

from runtime.contract.spec.transform import TransformSpec
from runtime.contract.views.trial_view import SampleRecord, TrialResult


class CheckRequest(msgspec.Struct, frozen=True, tag="check"):
    """Holds the transforms to check, by the names of their flows."""

    transforms: dict[str, TransformSpec]


class TryRequest(msgspec.Struct, frozen=True, tag="try"):
    """Holds the transform of a flow, and the records to try it on."""

    flow: str
    transform: TransformSpec
    records: list[SampleRecord]


class TransformProblem(msgspec.Struct, frozen=True):
    """Describes what Spark refuses: `part` is the key of the transform, and `line` and `column` are in it.

    They are 0 where Spark names no place.
    """

    flow: str
    part: str
    why: str
    line: int = 0
    column: int = 0


class SqlOutcome(msgspec.Struct, frozen=True):
    """Holds what is wrong with the transforms; where nothing is, the results of a trial."""

    problems: list[TransformProblem]
    results: list[TrialResult] = []


_requests: msgspec.json.Decoder[CheckRequest | TryRequest] = msgspec.json.Decoder(CheckRequest | TryRequest)
_results = msgspec.json.Decoder(list[TrialResult])


def encode(message: CheckRequest | TryRequest | SqlOutcome) -> bytes:
    return msgspec.json.encode(message)


def encode_results(results: list[TrialResult]) -> bytes:
    return msgspec.json.encode(results)


def decode_results(text: bytes) -> list[TrialResult]:
    return _results.decode(text)


def decode_request(text: bytes) -> CheckRequest | TryRequest:
    return _requests.decode(text)


def decode_outcome(text: bytes) -> SqlOutcome:
    return msgspec.json.decode(text, type=SqlOutcome)
