"""Defines the request of `repl status` and the facts that it reads from clusters: values only.

`status_join` derives the status from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runtime.audit.ledger import ClusterAccess
from runtime.contract.records.job_status import JobStatus, SlotReport, SourceEnds, StandbyStatus
from runtime.contract.records.ledger import Generation, PartitionKey, Progress
from runtime.contract.spec.route import Router
from runtime.kafka.protocol.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class FlowStatusRequest:
    """Describes a flow of the topology.

    `opposite` is the flow that copies in the opposite direction in its place. A flow into files has an
    `endpoint`, and commits only every `every_ms`; its destination is the home cluster of its job.
    """

    name: str
    source: str
    destination: str
    job: str
    state: str = "active"
    rpo_ms: int | None = None
    opposite: str | None = None
    endpoint: str = ""
    every_ms: int = 0


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """Describes the request for a topology's status. `router` decides which topics each flow takes.

    `standbys`: how many standbys a job declares, by its name.
    """

    topology: str
    clusters: Mapping[str, ClusterAccess]
    flows: Sequence[FlowStatusRequest]
    router: Router
    standbys: Mapping[str, int] = field(default_factory=dict)

    @property
    def sources(self) -> list[str]:
        return sorted({flow.source for flow in self.flows})

    @property
    def destinations(self) -> list[str]:
        return sorted({flow.destination for flow in self.flows})

    def into(self, destination: str) -> list[FlowStatusRequest]:
        """Returns the flows that write to a destination."""
        return [flow for flow in self.flows if flow.destination == destination]

    def selected(self, flow: FlowStatusRequest, topics: Mapping[str, TopicFacts]) -> dict[str, str]:
        """Returns those of the given topics that the flow takes, with their names at the destination."""
        names = ((topic, self.router.destination_topic(flow.name, topic)) for topic in topics)
        return {
            topic: destination_topic for topic, destination_topic in names if destination_topic is not None
        }


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """Holds a topic's id and its number of partitions."""

    id: bytes
    partitions: int


@dataclass(frozen=True, slots=True)
class ClusterTraffic:
    """Holds what was written to all topics of a cluster that are not internal, over a time.

    Transaction markers count as records. `bytes_per_s` is None where log sizes may not be read.
    """

    over_ms: int
    records_per_s: float
    bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """Holds the facts about one cluster.

    `starts`, `ends` (last stable) and `highs` (high watermarks) are by topic and partition, where they are
    known. `topics` is None where they could not be listed. `first_missing`: the timestamp of the first record
    that a flow did not copy yet, by flow, for the lagging partitions that were inspected. `retention`: ms by
    topic, None where nothing is deleted by time; a topic whose settings are unknown is left out.
    """

    name: str
    answers: bool
    why: str = ""
    id: str | None = None
    topics: Mapping[str, TopicFacts] | None = None
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    highs: Mapping[TopicPartition, int] = field(default_factory=dict)
    first_missing: Mapping[PartitionKey, int] = field(default_factory=dict)
    retention: Mapping[str, int | None] = field(default_factory=dict)
    traffic: ClusterTraffic | None = None


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """Holds the records of one destination: committed progress, and the reports of jobs."""

    progress: Mapping[str, Mapping[PartitionKey, Progress]] = field(default_factory=dict)
    generations: Mapping[str, Generation] = field(default_factory=dict)
    jobs: Mapping[str, JobStatus] = field(default_factory=dict)
    reports: Mapping[tuple[str, int], SlotReport] = field(default_factory=dict)
    ends: Mapping[tuple[str, str], SourceEnds] = field(default_factory=dict)
    standbys: Mapping[tuple[str, str], StandbyStatus] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StatusSnapshot:
    """Holds the facts of one inspection. `ledgers` has no entry for a destination that could not be read."""

    at_ms: int
    clusters: Mapping[str, ClusterFacts]
    ledgers: Mapping[str, LedgerFacts]
