"""What was read at two clusters, put together in a line or two: one flow of `orders` from dc1 to dc2."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from runtime.audit.status.facts import ClusterFacts, LedgerFacts, StatusRequest, StatusSnapshot, TopicFacts
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.records.advance import first_progress
from runtime.contract.records.job_status import (
    FlowStats,
    FlowView,
    JobStatus,
    JobStatusTable,
    PartitionState,
    PartitionStatus,
    SlotReport,
    SlotView,
)
from runtime.contract.records.latency import TopicLatency
from runtime.contract.records.ledger import Generation, PartitionKey, Progress
from runtime.contract.spec.files import FilesSpec
from runtime.contract.spec.jobspec import FlowSpec, Route
from runtime.contract.spec.naming import TopicPartition
from runtime.contract.spec.route import Router
from runtime.contract.spec.selection import SelectionSpec

NOW = 1_800_000_000_000
HERE, THERE = b"h" * 16, b"t" * 16
FLOW, JOB, TOPIC = "one", "dc2", "orders"
KEY = PartitionKey(FLOW, TOPIC, 0)
AT = TopicPartition(TOPIC, 0)


def asked(**changes: Any) -> StatusRequest:
    topics = SelectionSpec((TOPIC, "payments"))
    flow = FlowSpec(name=FLOW, source="dc1", destination="dc2", topics=topics, **changes)
    router = Router([Route(FLOW, "dc1", "dc2", topics)])
    clusters = {name: ClusterEndpoint(name, "") for name in ("dc1", "dc2")}
    return StatusRequest("shop", clusters, [flow], router, {FLOW: JOB})


def lake(every_ms: int) -> FilesSpec:
    return FilesSpec(endpoint="lake", folder="/lake", format="raw", every_ms=every_ms)


def source(start: int = 0, end: int = 100, **changes: Any) -> ClusterFacts:
    topics = {TOPIC: TopicFacts(HERE, 1), "unrelated": TopicFacts(HERE, 3)}
    return _answering("dc1", start, end, **{"id": "id-1", "topics": topics, **changes})


def destination(end: int = 100, **changes: Any) -> ClusterFacts:
    return _answering("dc2", 0, end, **{"id": "id-2", "topics": {TOPIC: TopicFacts(THERE, 1)}, **changes})


def _answering(name: str, start: int, end: int, **facts: Any) -> ClusterFacts:
    """A cluster that answers, and whose log of the topic is from `start` to `end`."""
    log = {"starts": {AT: start}, "ends": {AT: end}, "highs": {AT: end}}
    return ClusterFacts(name, **{"answers": True, **log, **facts})


SILENT = ClusterFacts("dc1", answers=False, why="no bootstrap broker answers")


def progress(position: int = 100, **changes: Any) -> Progress:
    begun = first_progress(
        generation=3,
        source_topic_id=HERE,
        destination_topic=TOPIC,
        destination_topic_id=THERE,
        position=position,
        destination_end=position,
        now_ms=NOW - 1_000,
    )
    return replace(begun, records=position, bytes=position * 10, last_timestamp=NOW - 1_500, **changes)


def generation(state: Any = "active", job: str = JOB) -> Generation:
    return Generation(3, job, state, "me", [], "id-1", "id-2", NOW - 60_000)


def job(age_ms: int = 400, **changes: Any) -> JobStatus:
    facts: dict[str, Any] = {
        "state": "running",
        "driver": "me",
        "slots": [SlotView(0, "running", NOW - 60_000, 1, 1)],
        "flows": [FlowView(FLOW, "active", 3, "id-1", "id-2", True, 1, 1)],
    }
    at = NOW - age_ms
    return JobStatus(job=JOB, topology="shop", at_ms=at, started_ms=at - 3_600_000, **{**facts, **changes})


def said(
    state: PartitionState, position: int = 100, source_end: int = 100, **changes: Any
) -> PartitionStatus:
    return PartitionStatus(
        FLOW,
        TOPIC,
        0,
        state,
        NOW - 30_000,
        position=position,
        source_end=source_end,
        last_fetch_ms=NOW - 200,
        caught_up_since_ms=NOW - 20_000,
        **changes,
    )


def report(
    *partitions: PartitionStatus,
    age_ms: int = 700,
    driver: str = "me",
    counts: Sequence[int] = (),
    latencies: Sequence[TopicLatency] = (),
    note: str = "",
) -> SlotReport:
    stats = FlowStats(FLOW, latency_counts=list(counts), latencies=list(latencies), note=note)
    return SlotReport(0, NOW - age_ms, 1, driver, 1, flows=[stats], partitions=list(partitions))


def ledger(
    made: Progress | None = None,
    status: JobStatus | None = None,
    word: SlotReport | None = None,
    who: Generation | None = None,
) -> LedgerFacts:
    return LedgerFacts(
        progress={FLOW: {KEY: made} if made is not None else {}},
        generations={FLOW: who if who is not None else generation()},
        reported=JobStatusTable(
            jobs={JOB: status} if status is not None else {},
            reports={(JOB, 0): word} if word is not None else {},
        ),
    )


def with_reported(written: LedgerFacts, **changes: Any) -> LedgerFacts:
    """The same ledger, where jobs report something else."""
    return dataclasses.replace(written, reported=replace(written.reported, **changes))


def look(
    here: ClusterFacts, there: ClusterFacts, written: LedgerFacts | None, at_ms: int = NOW
) -> StatusSnapshot:
    return StatusSnapshot(at_ms, {"dc1": here, "dc2": there}, {"dc2": written} if written is not None else {})
