"""Job specs for tests of launchers; no broker is behind them."""

from typing import Any

from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.launch import LaunchSpec
from runtime.contract.spec.selection import SelectionSpec


def spec_of(
    job: str = "dc2", *, client: dict[str, Any] | None = None, slots: int = 0, **launch: Any
) -> JobSpec:
    clusters = {name: ClusterSpec(bootstrap="127.0.0.1:9", client=client or {}) for name in ("dc1", "dc2")}
    flow = FlowSpec(name="f", source="dc1", destination="dc2", topics=SelectionSpec(include=("t",)))
    return JobSpec(
        job=job,
        topology="tests",
        destination="dc2",
        clusters=clusters,
        flows=[flow],
        slots=slots,
        launch=LaunchSpec(**launch),
    )
