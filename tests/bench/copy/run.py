"""One run of one side."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

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


class Side(Protocol):
    """`warm_s` after its first record it has come to its steady state."""

    @property
    def name(self) -> str: ...
    @property
    def warm_s(self) -> float: ...
    def start(self, run: Run) -> Running: ...
