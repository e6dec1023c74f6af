"""Defines the records and results of `repl try`: what came, and what a transform makes of it.

The field names of a result are those of `repl try --json`: they are only ever added.
"""

from typing import Literal

import msgspec

from runtime.contract.spec.transform import TransformSpec

Decision = Literal["travels", "filtered", "quarantined", "stops"]


class SampleRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a record of the source. `appended` says that its timestamp is the broker's."""

    topic: str
    partition: int = 0
    offset: int = 0
    timestamp_ms: int = -1
    appended: bool = False
    key: bytes | None = None
    value: bytes | None = None
    headers: list[tuple[str, bytes | None]] = []


class TrialResult(msgspec.Struct, frozen=True, kw_only=True):
    """Describes what the flow would do with a record.

    `after` is its value at the destination where it travels. `quarantined` and `stops` are for a bad record,
    by `on_bad_record`; `why` is the reason then.
    """

    record: SampleRecord
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
        return self.decision == "travels" and self.after != self.record.value


class TrialReport(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the results for a flow, and where its records come from: a cluster or a file."""

    flow: str
    source: str
    transform: TransformSpec
    results: list[TrialResult]

    def count(self, decision: Decision) -> int:
        return sum(one.decision == decision for one in self.results)
