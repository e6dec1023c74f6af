"""Derives the state of one partition: from the data first, then from the report of a live job. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from runtime.audit.status.facts import ClusterFacts, TopicFacts
from runtime.audit.status.jobs import JobFacts, SlotPartitionReport, duration
from runtime.contract.records.ledger import Generation, Progress
from runtime.contract.records.status import PartitionState as S
from runtime.contract.spec.naming import is_other_topic
from runtime.contract.views.status_view import DOWN, STALLED, UNKNOWN
from runtime.kafka.protocol.offsets import TopicPartition

STALLED_MS = 30_000
_COPIES = (S.COPYING, S.CAUGHT_UP)


class PartitionStateDetail(NamedTuple):
    """Holds a partition's state, since when it has it, and why."""

    state: str
    since_ms: int | None = None
    why: str = ""

    @property
    def needs_someone(self) -> bool:
        return self.state in (DOWN, STALLED) or self.state in _NEEDS_SOMEONE


_NEEDS_SOMEONE = frozenset(str(state) for state in S if state.needs_someone)


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """Holds all facts about a partition. None is an unknown value."""

    flow: str
    source_topic: TopicPartition
    destination_topic: TopicPartition | None
    source: ClusterFacts
    destination: ClusterFacts
    destination_read: bool
    progress: Progress | None
    generation: Generation | None
    promoted: bool
    job: JobFacts
    report: SlotPartitionReport | None
    lag_records: int | None
    lag_ms: int | None
    now_ms: int
    every_ms: int = 0  # a flow into files commits only so often


def state_of(facts: PartitionFacts) -> PartitionStateDetail:
    """Returns the state of a partition."""
    if not facts.destination_read:
        return PartitionStateDetail(UNKNOWN, None, f"{facts.destination.name} does not answer")
    ended = _ended(facts)
    if ended is not None:
        return ended
    found = _stopped_by_finding(facts)
    if found is not None:
        return found
    if facts.generation is not None and facts.generation.state == "paused":
        return PartitionStateDetail(S.PAUSED, facts.generation.written_at, facts.generation.note)
    if not facts.job.seen.up:
        return _down(facts)
    return _state_of_report(facts)


def _ended(facts: PartitionFacts) -> PartitionStateDetail | None:
    """Returns the state of a partition that is no longer copied on purpose: then no other fact matters."""
    if facts.promoted:
        return PartitionStateDetail(S.PROMOTED, None, "promoted on its own")
    generation = facts.generation
    if generation is not None and generation.state in ("promoted", "failed_over"):
        return PartitionStateDetail(generation.state, generation.written_at, generation.note)
    return None


def _stopped_by_finding(facts: PartitionFacts) -> PartitionStateDetail | None:
    """Returns the state in which both sides show that the partition must stop, whatever its job says.

    The partition continues only when the topology or an operator says how (R4).
    """
    finding = _finding(facts)
    if finding is None:
        return None
    state, why = finding
    reported = facts.report.status if facts.report is not None else None
    if reported is not None and reported.state == state:
        return PartitionStateDetail(state, reported.since_ms or None, reported.why or why)
    return PartitionStateDetail(state, None, why)


def _finding(facts: PartitionFacts) -> tuple[S, str] | None:
    progress, source, destination = facts.progress, facts.source, facts.destination
    if progress is None:
        return None
    if source.topics is not None:
        here = source.topics.get(facts.source_topic.topic)
        if here is None or facts.source_topic.partition >= here.partitions:
            return S.SOURCE_DELETED, f"{facts.source_topic.topic} is gone from {source.name}"
        if _other(here, progress.source_topic_id):
            return S.RECREATED, f"{facts.source_topic.topic} at {source.name} was deleted and made again"
    if destination.topics is not None:
        name = progress.destination_topic
        there = destination.topics.get(name)
        if there is None:
            return S.RECREATED, f"{name} is gone from {destination.name}"
        if _other(there, progress.destination_topic_id):
            return S.RECREATED, f"{name} at {destination.name} was deleted and made again"
    return _cut(facts, progress)


def _other(topic: TopicFacts, known: bytes) -> bool:
    return is_other_topic(known, topic.id)


def _cut(facts: PartitionFacts, progress: Progress) -> tuple[S, str] | None:
    start = facts.source.starts.get(facts.source_topic)
    if start is not None and progress.position < start:
        lost = f"offsets {progress.position} to {start - 1}"
        return S.DATA_LOSS, f"{lost} are gone from {facts.source.name} and were not copied"
    high = facts.source.highs.get(facts.source_topic)
    if high is not None and progress.position > high:
        return S.DIVERGED, f"{facts.source.name} ends at {high}, {progress.position} was copied already"
    end = (
        facts.destination.highs.get(facts.destination_topic) if facts.destination_topic is not None else None
    )
    if end is not None and end < progress.destination_end:
        return S.DIVERGED, (
            f"{facts.destination.name} ends at {end}, {progress.destination_end} was written already"
        )
    return None


def _down(facts: PartitionFacts) -> PartitionStateDetail:
    job, reported = facts.job.seen, facts.report.status if facts.report is not None else None
    why = f"job {job.name}: {job.why}"
    if reported is not None and reported.state.needs_someone:
        why += f"; before that {reported.state}: {reported.why}"
    return PartitionStateDetail(DOWN, job.heartbeat_ms, why)


def _state_of_report(facts: PartitionFacts) -> PartitionStateDetail:
    report = facts.report
    if report is None:
        return _state_without_report(facts)
    reported = report.status
    if report.silent_ms is not None:
        slot = next((one for one in facts.job.seen.slots if one.slot == report.slot), None)
        why = f"slot {report.slot} has said nothing for {duration(report.silent_ms)}"
        if slot is not None and slot.state == S.UNSCHEDULED:
            return PartitionStateDetail(S.UNSCHEDULED, slot.since_ms, slot.why or why)
        return PartitionStateDetail(S.RETRYING, report.at_ms, why)
    if reported.state is S.CAUGHT_UP and not facts.source.answers:
        why = f"{facts.source.name} does not answer; the job says {reported.state}, but there may be more"
        return PartitionStateDetail(UNKNOWN, None, why)
    if reported.state not in _COPIES or facts.lag_records is None:
        return PartitionStateDetail(reported.state, reported.since_ms or None, reported.why)
    if facts.lag_records == 0:
        return PartitionStateDetail(
            S.CAUGHT_UP, _since(reported.state is S.CAUGHT_UP, reported.since_ms, report.at_ms), reported.why
        )
    idle_ms = facts.now_ms - (facts.progress.written_at if facts.progress is not None else reported.since_ms)
    longest_ms = STALLED_MS + 2 * facts.every_ms
    if idle_ms > longest_ms and (facts.lag_ms or 0) > longest_ms:
        why = f"the job says {reported.state}, but nothing was committed for {duration(idle_ms)}"
        return PartitionStateDetail(STALLED, facts.now_ms - idle_ms, why)
    return PartitionStateDetail(
        S.COPYING, _since(reported.state is S.COPYING, reported.since_ms, report.at_ms), reported.why
    )


def _since(same: bool, since_ms: int, otherwise_ms: int) -> int | None:
    return (since_ms if same else otherwise_ms) or None


def _state_without_report(facts: PartitionFacts) -> PartitionStateDetail:
    """Returns the state of a partition whose job runs, but of which no slot has reported anything."""
    view = facts.job.flows.get(facts.flow)
    if view is None:
        return PartitionStateDetail(DOWN, None, f"job {facts.job.seen.name} runs without this flow")
    if view.why:
        return PartitionStateDetail(S.RETRYING, None, view.why)
    slots = facts.job.seen.slots
    if slots and not any(slot.state == "running" for slot in slots):
        state = S.UNSCHEDULED if slots[0].state == S.UNSCHEDULED else S.STARTING
        return PartitionStateDetail(state, slots[0].since_ms, slots[0].why)
    return PartitionStateDetail(S.STARTING, None, "no slot has it yet")
