"""What a driver sees and slots report, in few words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import Metric

from runtime.contract.records.job_status import (
    FlowStats,
    FlowView,
    JobStatus,
    PartitionState,
    PartitionStatus,
    SlotReport,
    SlotView,
)
from runtime.contract.records.ledger import PartitionKey
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.launch import MetricsSpec
from runtime.contract.spec.selection import SelectionSpec
from runtime.metrics.endpoint import JobCollector
from runtime.metrics.snapshot import ClusterSnapshot, FlowSnapshot, GroupSnapshot, JobSnapshot, SlotMetrics

NOW_S = 1_800_000_000.0
NOW_MS = int(NOW_S * 1000)
MADE_AT = 50.0


def partition(number: int = 0, flow: str = "f", topic: str = "t", **told: Any) -> PartitionStatus:
    known: dict[str, Any] = {
        "state": PartitionState.CAUGHT_UP,
        "since_ms": NOW_MS,
        "position": 100,
        "source_end": 100,
        **told,
    }
    return PartitionStatus(flow=flow, topic=topic, partition=number, **known)


def report(
    *partitions: PartitionStatus,
    slot: int = 0,
    attempt: int = 1,
    at_ms: int = NOW_MS,
    flows: Iterable[FlowStats] = (),
) -> SlotReport:
    return SlotReport(
        slot,
        at_ms,
        1,
        "driver",
        attempt,
        rss_bytes=60 << 20,
        flows=list(flows),
        partitions=list(partitions),
    )


def running(slot: int = 0, attempts: int = 1, **told: Any) -> SlotView:
    known: dict[str, Any] = {"state": "running", "since_ms": NOW_MS, "attempts": attempts, **told}
    return SlotView(slot, **known)


def flow_spec(name: str = "f", **told: Any) -> FlowSpec:
    return FlowSpec(name=name, source="dc1", destination="dc2", topics=SelectionSpec(include=(".*",)), **told)


def flow(name: str = "f", partitions: int = 1, generation: int = 1, **told: Any) -> FlowSnapshot:
    keys = [PartitionKey(name, "t", number) for number in range(partitions)]
    view = FlowView(name, "active", generation=generation, source_answers=True, topics=1)
    return FlowSnapshot(flow_spec(name, **told), view, keys, {"topics": 1})


def picture(
    *flows: FlowSnapshot,
    slots: Iterable[SlotView] = (),
    reports: Iterable[SlotReport] = (),
    heartbeat_age_s: float = 0.5,
    state: Any = "running",
    trouble: str = "",
    partitions: int = 2_000,
    groups: Iterable[GroupSnapshot] = (),
) -> JobSnapshot:
    spec = JobSpec(
        job="dc2",
        topology="shop",
        destination="dc2",
        clusters={},
        flows=[one.spec for one in flows],
        metrics=MetricsSpec(partitions=partitions),
    )
    status = JobStatus(
        "dc2", "shop", "driver", state, NOW_MS, NOW_MS - 60_000, trouble=trouble, slots=list(slots)
    )
    return JobSnapshot(
        spec=spec,
        status=status,
        made_at=MADE_AT,
        heartbeat_age_s=heartbeat_age_s,
        reports={one.slot: one for one in reports},
        flows=list(flows),
        clusters={"dc2": ClusterSnapshot(10, 2, 1)},
        groups=list(groups),
    )


def collected(seen: JobSnapshot | None, book: SlotMetrics, *, after_s: float = 0.0) -> list[Metric]:
    collector = JobCollector(lambda: seen, book, lambda: NOW_S + after_s, lambda: MADE_AT + after_s)
    return list(collector.collect())


def series(metrics: Iterable[Metric]) -> dict[str, float]:
    """Every series as Prometheus writes it; empty labels are no labels."""
    return {
        f"{sample.name}{_braces(sample.labels)}": sample.value
        for metric in metrics
        for sample in metric.samples
    }


def _braces(labels: Mapping[str, str]) -> str:
    said = ",".join(f'{name}="{value}"' for name, value in labels.items() if value)
    return f"{{{said}}}" if said else ""
