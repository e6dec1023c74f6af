"""A job as its destination tells of it: what it last said of itself, and by which spec it runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from runtime.contract.spec.jobspec import FlowSpec, JobSpec

FRESH_MS = 10_000  # a heartbeat comes every second; one that is older than this is no sign of life


@dataclass(frozen=True, slots=True)
class LiveJob:
    """`live`: its heartbeat is fresh and it does not say that it stopped. `spec` is None where it never told
    one, or one that only a newer release reads. `lag` is by flow, in records, as its slots last said.
    """

    name: str
    cluster: str
    topology: str
    driver: str
    state: str
    at_ms: int
    live: bool
    spec: JobSpec | None = None
    where: str = ""
    lag: Mapping[str, int] = field(default_factory=dict)

    def flow(self, name: str) -> FlowSpec | None:
        flows = self.spec.flows if self.spec is not None else ()
        return next((flow for flow in flows if flow.name == name), None)
