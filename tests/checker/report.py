"""What a comparison found, so that a person knows at once which record went wrong, and how."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

SHOWN = 20


class Kind(StrEnum):
    MISSING = "missing"
    DOUBLED = "doubled"
    REORDERED = "reordered"
    CHANGED = "changed"
    FOREIGN = "foreign"  # at the destination, never at the source
    MISPLACED = "misplaced"  # its provenance header names another record
    LOST_AT_SOURCE = "lost at source"  # acknowledged to the writer, and not in the source's log
    UNABORTED = "unaborted"  # aborted by the writer, and visible at the source


# Kafka's own, where brokers are killed: what was sent late may fall into its writer's next transaction.
AT_SOURCE = frozenset({Kind.LOST_AT_SOURCE, Kind.UNABORTED})


@dataclass(frozen=True, slots=True)
class Finding:
    kind: Kind
    partition: int
    source: int | None  # offsets
    there: int | None
    timestamp: int
    key: str
    detail: str = ""

    def __str__(self) -> str:
        left = "-" if self.source is None else str(self.source)
        right = "-" if self.there is None else str(self.there)
        tail = f": {self.detail}" if self.detail else ""
        at = f"partition {self.partition}, source {left}, there {right}"
        return f"{self.kind}: {at}, key {self.key}, time {self.timestamp}{tail}"


@dataclass(frozen=True, slots=True)
class Report:
    topic: str
    there: str
    records: int  # at the source
    arrived: int
    findings: Sequence[Finding]
    pairs: dict[int, list[tuple[int, int]]] = field(repr=False)  # per partition: source offset, offset there

    @property
    def clean(self) -> bool:
        return not self.findings

    @property
    def exact(self) -> bool:
        """Whether the copy is what readers see at the source. What went wrong there is no copy's doing."""
        return all(finding.kind in AT_SOURCE for finding in self.findings)

    def count(self, kind: Kind) -> int:
        return sum(finding.kind is kind for finding in self.findings)

    def __str__(self) -> str:
        counted = Counter(finding.kind for finding in self.findings)
        tally = ", ".join(f"{counted[kind]} {kind}" for kind in Kind if counted[kind] or kind in _ALWAYS)
        lines = [f"{self.topic} → {self.there}: {self.arrived} of {self.records} records; {tally}"]
        lines += [f"  {finding}" for finding in self.findings[:SHOWN]]
        if len(self.findings) > SHOWN:
            lines.append(f"  … and {len(self.findings) - SHOWN} more")
        return "\n".join(lines)


_ALWAYS = (Kind.MISSING, Kind.DOUBLED, Kind.REORDERED, Kind.CHANGED)
