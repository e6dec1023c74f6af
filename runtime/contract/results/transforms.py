"""Defines the requests to Spark about transforms, and their outcomes: files of JSON.

A request checks the transforms of flows, or tries one transform on records for `repl try`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.spec.transform import TransformSpec

Decision = Literal["travels", "tombstone", "filtered", "quarantined", "stops"]


class TrialResult(msgspec.Struct, frozen=True, kw_only=True):
    """Describes what the flow would do with a record.

    `after` is its value at the destination, if the record is copied. `tombstone` and `filtered` are for a
    record that `where` leaves out, by `on_filtered`. `quarantined` and `stops` are for a bad record, by
    `on_bad_record`; `why` is the reason then.
    """

    record: ConsumerRecord
    decision: Decision
    after: bytes | None = None
    why: str = ""

    @property
    def bad(self) -> bool:
        """Whether the record does not match its format, or an expression fails on it."""
        return self.decision in ("quarantined", "stops")

    @property
    def changed(self) -> bool:
        """Whether the destination gets another value than the source has."""
        return self.decision in ("travels", "tombstone") and self.after != self.record.value


class TrialReport(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the results for a flow, and where its records come from: a cluster or a file."""

    flow: str
    source: str
    transform: TransformSpec
    results: list[TrialResult]

    def count(self, decision: Decision) -> int:
        return sum(result.decision == decision for result in self.results)


class CheckRequest(msgspec.Struct, frozen=True, tag="check"):
    """Holds the transforms to check, by the names of their flows, and the formats of those into files."""

    transforms: dict[str, TransformSpec]
    files: dict[str, Literal["json", "parquet"]] = {}


class TryRequest(msgspec.Struct, frozen=True, tag="try"):
    """Holds the transform of a flow, and the records to try it on."""

    flow: str
    transform: TransformSpec
    records: list[ConsumerRecord]


class TransformProblem(msgspec.Struct, frozen=True):
    """Describes a part of a transform that Spark refuses.

    `part` is the key in the transform. `line` and `column` are a place in its text, 0 where Spark names none.
    """

    flow: str
    part: str
    why: str
    line: int = 0
    column: int = 0


class SqlOutcome(msgspec.Struct, frozen=True):
    """Holds the problems of the transforms; if there are none, the results of a trial."""

    problems: list[TransformProblem]
    results: list[TrialResult] = []


encode = msgspec.json.encode
decode_request = msgspec.json.Decoder[CheckRequest | TryRequest](CheckRequest | TryRequest).decode
decode_results = msgspec.json.Decoder(list[TrialResult]).decode
decode_outcome = msgspec.json.Decoder(SqlOutcome).decode
