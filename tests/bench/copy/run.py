"""One run of one side."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from runtime.contract.spec.schemas import RegistrySpec
from tests.bench.copy.processes import Running
from tests.bench.copy.workloads import Workload


@dataclass(frozen=True, slots=True)
class Run:
    """`source` and `destination` are bootstrap addresses, `tag` is unlike any other run's.

    `registries` are the schema registries of the clusters `here` and `there`, if the workload has schemas.
    """

    tag: str
    workload: Workload
    topic: str
    source: str
    destination: str
    folder: Path
    slots: int = 1
    registries: Mapping[str, RegistrySpec] = field(default_factory=dict)

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
