"""Defines the request of `repl status` and the facts that it reads, and computes figures from them.

It is pure. The figures are lag in seconds, rates and sums. `join` derives the status from the facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec import Struct

from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.records.job_status import JobStatusTable
from runtime.contract.records.ledger import Generation, PartitionKey, Progress
from runtime.contract.results.status import ClusterTraffic
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.naming import TopicPartition
from runtime.contract.spec.route import Router
from runtime.contract.spec.selected_topics import SelectedTopics

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """Describes the request for a topology's status. `router` decides which topics each flow takes.

    `jobs`: the job of each flow, by the flow's name. `standbys`: how many standbys each job declares.
    """

    topology: str
    clusters: Mapping[str, ClusterEndpoint]
    flows: Sequence[FlowSpec]
    router: Router
    jobs: Mapping[str, str]
    standbys: Mapping[str, int] = field(default_factory=dict)
    _selected: SelectedTopics = field(default_factory=SelectedTopics, init=False, repr=False, compare=False)

    _reversed_by: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._reversed_by.update((flow.reverse_of, flow.name) for flow in self.flows if flow.reverse_of)

    @property
    def sources(self) -> list[str]:
        return sorted({flow.source for flow in self.flows})

    @property
    def destinations(self) -> list[str]:
        return sorted({flow.destination for flow in self.flows})

    def into(self, destination: str) -> list[FlowSpec]:
        """Returns the flows that write to a destination."""
        return [flow for flow in self.flows if flow.destination == destination]

    def opposite_of(self, flow: FlowSpec) -> str | None:
        """Returns the flow in the opposite direction: the original of a reverse flow, or its reverse flow."""
        return flow.reverse_of or self._reversed_by.get(flow.name)

    def selected(self, flow: FlowSpec, topics: Mapping[str, TopicFacts]) -> Mapping[str, str]:
        """Returns those of its source's topics that the flow takes, with their names at the destination.

        The result is valid until the next call. `topics` must not change after the call.
        """
        return self._selected.of(self.router, flow.name, flow.source, topics)


class TopicFacts(Struct, frozen=True):
    """Holds a topic's id and its number of partitions.

    Those below `first` are not the flow's: a file is read into one partition.
    """

    id: bytes
    partitions: int
    first: int = 0


@dataclass(slots=True)
class ClusterFacts:
    """Holds the facts about one cluster. Its inspection fills them in; nothing changes them afterwards.

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
    """Holds the records of one destination: committed progress, and what jobs report.

    The progress is that of the time `read_ms`; 0 for the time of the inspection.
    """

    progress: Mapping[str, Mapping[PartitionKey, Progress]] = field(default_factory=dict)
    generations: Mapping[str, Generation] = field(default_factory=dict)
    reported: JobStatusTable = field(default_factory=JobStatusTable)
    read_ms: int = 0


class StatusSnapshot(Struct, frozen=True):
    """Holds the facts of one inspection, of which the last was read at `at_ms`.

    `ledgers` has no entry for a destination that could not be read.
    """

    at_ms: int
    clusters: Mapping[str, ClusterFacts]
    ledgers: Mapping[str, LedgerFacts]

    @property
    def ledgers_ms(self) -> int:
        """Returns when the last of the ledgers was read."""
        return max((ledger.read_ms for ledger in self.ledgers.values()), default=0) or self.at_ms


def lag_ms(
    records: int | None,
    now_ms: int,
    *,
    first_missing_ms: int | None = None,
    caught_up_ms: int | None = None,
    newest_copied_ms: int | None = None,
) -> int | None:
    """Returns how long the oldest record that is not replicated has been waiting, in ms.

    It goes by the record's own timestamp, but is never longer than the time since the partition was last
    known to be caught up: a record that arrived since then can't wait longer, however old its timestamp is.
    Where the record was not read, the newest copied record is used instead: later records are rarely older.
    """
    if records is None:
        return None
    if records == 0:
        return 0
    since = [time for time in (first_missing_ms, caught_up_ms) if time is not None and time > 0]
    if first_missing_ms is None and newest_copied_ms is not None and newest_copied_ms > 0:
        since.append(newest_copied_ms)
    return max(now_ms - max(since), 0) if since else None


def rate(now: int, before: int | None, elapsed_ms: int) -> float | None:
    """Returns the rate per second; None where there is nothing to compare with."""
    if before is None or elapsed_ms <= 0:
        return None
    return min(max(now - before, 0), 1 << 63) * 1000 / elapsed_ms  # JSON may hold more than a float can


def sum_known(values: Iterable[_Number | None]) -> _Number | None:
    """Returns the sum of the known values, or None where none is known."""
    present = [value for value in values if value is not None]
    return sum(present[1:], present[0]) if present else None


def longest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
