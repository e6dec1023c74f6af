"""Defines the request and the outcome of the verify application: files of JSON, and bytes for tasks. Pure."""

from __future__ import annotations

import msgspec

from runtime.audit.verify.compare import RecordDifference
from runtime.contract.spec.jobspec import ClusterSpec, FlowSpec
from runtime.contract.views.records_view import VerificationReport


class VerifyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a comparison. It holds no secret: clusters hold references, as in a job's spec.

    `topics`: a regex for whole names at the source. `low` and `high` bound the source offsets of every
    partition; `last` selects so many before the end instead. `sample`: a share in percent. `rate`: bytes a
    second, both sides and all tasks together. `tail`: behind the last copied record, the destination is still
    written by the flow alone. `opposite`: the flow in the opposite direction, of which this one is the
    reverse.
    """

    flow: FlowSpec
    source: ClusterSpec
    destination: ClusterSpec
    topics: str | None = None
    low: int | None = None
    high: int | None = None
    last: int | None = None
    sample: float = 100.0
    rate: int | None = None
    tail: bool = True
    within_s: float = 10.0
    opposite: str | None = None


class VerificationPiece(msgspec.Struct, frozen=True, array_like=True):
    """Holds source offsets `low … high-1` of one partition and the corresponding range at the destination.

    `runs` is the map between them, `gaps` the offsets that were given up. From `owned_end` on, the flow's own
    records at the destination are newer than the map, and where it is not `alone`, other producers may write.
    `replayed` are source offsets that salvage replayed into the destination's topic: low, end, records. `own`
    are offsets at the destination that the opposite flow left there.
    """

    number: int  # of the partition in the plan
    topic: str
    partition: int
    source_id: bytes
    destination_topic: str
    destination_id: bytes
    low: int
    high: int
    destination_low: int
    destination_high: int
    owned_end: int
    runs: bytes
    gaps: tuple[tuple[int, int, str], ...]  # low, end, why
    compacted: bool
    alone: bool = True
    replayed: tuple[tuple[int, int, int], ...] = ()
    own: tuple[tuple[int, int], ...] = ()


class VerifiedPiece(msgspec.Struct, frozen=True, array_like=True):
    """Reports the comparison of a piece.

    `unread`: why it stopped at the source offset `end`; `passed`: retention deleted the records there.
    `replayed`: the records found of each range of the ledger, by the range's first source offset. `filtered`:
    records that the flow's transform does not let through.
    """

    number: int
    low: int
    end: int
    compared: int
    kept_back: int
    given_up: int
    others: int
    compacted: int
    edits: list[RecordDifference]
    more: bool
    unread: str = ""
    passed: bool = False
    replayed: dict[int, int] = {}
    filtered: int = 0


class VerificationOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Reports the comparison, or the cluster that could not be read, why, and what to do."""

    verified: VerificationReport | None = None
    cluster: str = ""
    why: str = ""
    way_out: str = ""


encode_request = msgspec.json.encode
_request = msgspec.json.Decoder(VerifyRequest)
_outcome = msgspec.json.Decoder(VerificationOutcome)


def decode_request(text: bytes) -> VerifyRequest:
    return _request.decode(text)


def encode_outcome(outcome: VerificationOutcome) -> bytes:
    return msgspec.json.encode(outcome)


def decode_outcome(text: bytes) -> VerificationOutcome:
    return _outcome.decode(text)
