"""One run of one side."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from tests.bench.copy.processes import Running
from tests.bench.copy.workloads import Workload


@dataclass(frozen=True, slots=True)
class Run:
    """`source` and `destination` are bootstrap addresses, `tag` is unlike any other run's."""

    tag: str
    workload: Workload
    topic: str
    source: str
    destination: str
    folder: Path
    slots: int = 1

    @property
    def mirror_topic(self) -> str:
        return f"{self.tag}.{self.topic}"


# What a tuned producer waits for more records: for throughput, and, both measured, for latency.
THROUGHPUT_LINGER_MS: Final = 20
LATENCY_LINGERS_MS: Final = (0, 5)


class Side(Protocol):
    """`warm_s` after its first record it has come to its steady state."""

    @property
    def name(self) -> str: ...
    @property
    def warm_s(self) -> float: ...
    def start(self, run: Run) -> Running: ...
