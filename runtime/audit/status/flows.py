"""Derives the status of one flow, its topics and its partitions, from what was read. Pure.

The state of a partition is derived from the data first, then from the report of a live job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial

from runtime.audit.status.facts import (
    ClusterFacts,
    LedgerFacts,
    StatusRequest,
    StatusSnapshot,
    TopicFacts,
    lag_ms,
    longest,
    rate,
    sum_known,
)
from runtime.audit.status.jobs import JobReports, duration
from runtime.contract.records.failback import handed_over
from runtime.contract.records.job_status import ANOTHER_LOG, NEEDS_DECISION, PartitionStatus, SlotReport
from runtime.contract.records.job_status import PartitionState as S
from runtime.contract.records.latency import TopicLatency, by_topic, quantile, summed
from runtime.contract.records.ledger import PartitionKey, Progress
from runtime.contract.results.status import (
    DOWN,
    STALLED,
    UNKNOWN,
    FlowHealth,
    LatencyFigures,
    PartitionHealth,
    TopicHealth,
    next_step,
)
from runtime.contract.spec import naming
from runtime.contract.spec.files import LinesSpec
from runtime.contract.spec.jobspec import FlowSpec
from runtime.contract.spec.naming import TopicPartition, is_other_topic
from runtime.contract.spec.selection import NamePatterns

# In order, the worst first: a topic, or a flow, has the worst state of its partitions.
_WORST = (
    UNKNOWN,
    *(state for state in S if state.needs_decision),
    DOWN,
    STALLED,
    S.BLOCKED_AT_SOURCE,
    S.RETRYING,
    S.UNSCHEDULED,
    S.STARTING,
    S.COPYING,
    S.CAUGHT_UP,
    S.PAUSED,
    S.FAILED_OVER,
    S.PROMOTED,  # last: one topic that was promoted on its own says nothing about the flow
)
_RANK = {str(state): rank for rank, state in enumerate(_WORST)}
_WAITS_FOR_OPERATOR = NEEDS_DECISION | {DOWN, STALLED}
_ENDED = (S.PROMOTED, S.FAILED_OVER)
_HELD = ("paused", "promoted", "failed_over")
_COPIES = (S.COPYING, S.CAUGHT_UP)
SILENT_MS = 15_000  # a slot reports at least every five seconds
STALLED_MS = 30_000
_NO_LEDGER = LedgerFacts()
_StateDetail = tuple[str, int | None, str]  # a partition's state, since when it has it, and why


def worst(states: Iterable[str]) -> str | None:
    """Returns the worst of the states; None where there is none."""
    return min(states, key=lambda state: _RANK[state], default=None)


class FlowFacts:
    """Selects what was read about one flow, and derives its status.

    `destination_read` is False where the destination's ledger could not be read. `before` is the ledger at an
    earlier inspection. `names`: the flow's topics and their names at the destination. `handed_over`: the flow
    has ended, and its failback flow began at its end. `source` are the topics that the flow reads, or its
    files; `progress` is that of these.
    """

    def __init__(
        self,
        request: StatusRequest,
        declared: FlowSpec,
        job: JobReports,
        now: StatusSnapshot,
        before: StatusSnapshot,
    ) -> None:
        ledger = now.ledgers.get(declared.destination)
        self.destination_read = ledger is not None
        ledger = ledger or _NO_LEDGER
        earlier = before.ledgers.get(declared.destination, _NO_LEDGER)
        self.declared, self.job, self.job_name = declared, job, request.jobs[declared.name]
        self.destination = now.clusters[declared.destination]
        self.progress = progress = ledger.progress.get(declared.name, {})
        self.source = now.clusters[declared.source]
        self.names: dict[str, str | None]
        if declared.lines is not None:
            self.source = _files(declared.name, declared.lines, job, progress)
            topics = self.source.topics or {}
            self.names = dict.fromkeys(topics, declared.lines.topic)
            self.progress = {key: made for key, made in progress.items() if key.topic in topics}
        else:
            self.names = dict(request.selected(declared, self.source.topics or {}))
            takes = partial(request.router.destination_topic, declared.name)
            for key, made in progress.items():
                if key.topic in self.names or takes(key.topic) is not None:
                    self.names[key.topic] = made.destination_topic
        self.before = earlier.progress.get(declared.name, {})
        self.generation = ledger.generations.get(declared.name)
        patterns = NamePatterns(self.generation.promoted if self.generation is not None else ())
        self.promoted = frozenset(topic for topic in self.names if patterns.match(topic))
        back = now.ledgers.get(declared.source, _NO_LEDGER).generations.get(
            request.opposite_of(declared) or ""
        )
        self.handed_over = (
            self.generation is not None and back is not None and handed_over(self.generation, back)
        )
        self.now_ms = now.at_ms
        self.elapsed_ms = (ledger.read_ms or now.ledgers_ms) - (earlier.read_ms or before.ledgers_ms)

    def status(self) -> FlowHealth:
        """Returns the status of the flow."""
        declared, job, generation = self.declared, self.job, self.generation
        stats = job.stats.get(declared.name, ()) if job.seen.up else ()
        latencies_of = by_topic(latency for flow in stats for latency in flow.latencies)
        numbers: dict[str, set[int]] = {}
        for key in self.progress:
            numbers.setdefault(key.topic, set()).add(key.partition)
        topics = [
            self._topic(topic, numbers.get(topic, set()), latencies_of.get(topic))
            for topic in sorted(self.names)
        ]
        partitions = [partition for topic in topics for partition in topic.partitions]
        recent = job.recent.get(declared.name, ()) if job.seen.up else ()
        latencies = recent if any(recent) else summed(flow.latency_counts for flow in stats)
        lag = longest(partition.lag_ms for partition in partitions)
        driver = job.flows.get(declared.name)
        source_id = self.source.id or (driver.source_cluster_id if driver is not None else "")
        state = worst(partition.state for partition in partitions)
        if state is None and not self.destination_read:
            state = UNKNOWN
        elif state is None and generation is not None and generation.state in _HELD:
            state = generation.state
        elif state is None:
            state = str(S.STARTING) if job.seen.up else DOWN
        # The newest replicated heartbeat measures the link from end to end.
        beats = self.progress.get(PartitionKey(declared.name, naming.HEARTBEATS, 0))
        return FlowHealth(
            name=declared.name,
            source=declared.source_name,
            destination=declared.destination_name,
            job=job.seen.name,
            state=state,
            declared=declared.state,
            why=self._why(state, partitions),
            notes=[
                *(driver.notes if driver is not None and job.seen.up else ()),
                *dict.fromkeys(flow.note for flow in stats if flow.note),
            ],
            source_cluster_id=source_id or None,
            destination_cluster_id=self.destination.id,
            source_answers=self.source.answers,
            destination_answers=self.destination_read,
            generation=generation.number if generation is not None else None,
            ended=generation is not None and generation.ended,
            lag_records=sum_known(partition.lag_records for partition in partitions),
            lag_ms=lag,
            rpo_ms=declared.rpo_ms,
            rpo_met=self._rpo_met(lag, partitions),
            records_per_s=sum_known(partition.records_per_s for partition in partitions),
            bytes_per_s=sum_known(partition.bytes_per_s for partition in partitions),
            latency_p50_ms=quantile(latencies, 0.5),
            latency_p99_ms=quantile(latencies, 0.99),
            latency_over_ms=self.elapsed_ms if any(recent) else None,
            dropped=sum(partition.dropped for partition in partitions),
            throttled_ms=sum(flow.throttled_ms for flow in stats),
            stuck_lanes=[lane for flow in stats for lane in flow.stuck_lanes],
            link_age_ms=max(self.now_ms - beats.last_timestamp, 0)
            if beats is not None and beats.last_timestamp > 0
            else None,
            states=dict(sorted(Counter(partition.state for partition in partitions).items())),
            topics=topics,
            next=list(dict.fromkeys(partition.next for partition in partitions if partition.next)),
            time_to_loss_ms=min(
                (topic.time_to_loss_ms for topic in topics if topic.time_to_loss_ms is not None), default=None
            ),
            quarantined=sum(partition.quarantined for partition in partitions),
            tombstones=sum(partition.tombstones for partition in partitions),
        )

    def _rpo_met(self, lag_ms: int | None, partitions: list[PartitionHealth]) -> bool | None:
        """Returns whether the longest wait is within the RPO; None where an unknown wait may be longer."""
        rpo_ms = self.declared.rpo_ms
        if rpo_ms is None or lag_ms is None:
            return None
        if lag_ms > rpo_ms:
            return False
        return True if all(partition.lag_ms is not None for partition in partitions) else None

    def _why(self, state: str, partitions: list[PartitionHealth]) -> str:
        """Returns what hinders the flow, in one line: clusters first, its job, then its worst partition."""
        source, destination, job = self.source, self.destination, self.job
        reasons = []
        if not source.answers:
            reasons.append(f"source {source.name} does not answer: {source.why}")
        if not self.destination_read:
            verb = "can't be read" if destination.answers else "does not answer"
            reasons.append(f"destination {destination.name} {verb}: {destination.why}")
        elif not job.seen.up and state in _WAITS_FOR_OPERATOR and state != STALLED:
            reasons.append(f"job {job.seen.name}: {job.seen.why}")
        driver = job.flows.get(self.declared.name)
        if driver is not None and driver.why and job.seen.up:
            reasons.append(driver.why)
        held = self.generation
        if self.destination_read and held is not None and held.state not in ("stopped", self.declared.state):
            reasons.append(f"the topology says {self.declared.state}, it is {held.state}")
        if self.destination_read and job.seen.name != self.job_name:
            reasons.append(f"job {job.seen.name} has it, not {self.job_name}")
        if not reasons and source.answers and not self.names:
            in_files = self.declared.lines is not None
            reasons.append(
                f"{source.name} holds no file" if in_files else f"no topic at {source.name} matches"
            )
        if not reasons:
            reasons += [
                f"{partition.topic}-{partition.partition}: {partition.why}"
                for partition in partitions
                if partition.state == state and partition.why
            ][:1]
        return "; ".join(reasons)

    def _topic(self, topic: str, copied: set[int], latency: TopicLatency | None) -> TopicHealth:
        listed = self.source.topics.get(topic) if self.source.topics is not None else None
        numbers = copied.union(range(listed.first, listed.partitions) if listed is not None else ())
        partitions = [
            PartitionFacts(self, PartitionKey(self.declared.name, topic, number)).status()
            for number in sorted(numbers)
        ]
        return TopicHealth(
            topic=topic,
            destination_topic=self.names[topic],
            state=worst(partition.state for partition in partitions) or str(S.STARTING),
            lag_records=sum_known(partition.lag_records for partition in partitions),
            lag_ms=longest(partition.lag_ms for partition in partitions),
            records_per_s=sum_known(partition.records_per_s for partition in partitions),
            bytes_per_s=sum_known(partition.bytes_per_s for partition in partitions),
            partitions=partitions,
            time_to_loss_ms=self._time_to_loss(topic, partitions),
            latency=None
            if latency is None
            else LatencyFigures(
                records=latency.records,
                min_ms=latency.min_ms,
                avg_ms=latency.average_ms,
                max_ms=latency.max_ms,
                p50_ms=latency.quantile(0.5),
                p99_ms=latency.quantile(0.99),
            ),
        )

    def _time_to_loss(self, topic: str, partitions: list[PartitionHealth]) -> int | None:
        """Returns the retention less the longest wait of a record; None for a flow that has ended."""
        retention = self.source.retention.get(topic)
        ended = self.handed_over or topic in self.promoted
        if retention is None or ended or all(partition.state in _ENDED for partition in partitions):
            return None
        waits = [partition.lag_ms for partition in partitions]
        lags = [wait for wait in waits if wait is not None]
        return max(retention - max(lags), 0) if len(lags) == len(waits) else None


def _files(
    flow: str, lines: LinesSpec, job: JobReports, progress: Mapping[PartitionKey, Progress]
) -> ClusterFacts:
    """Returns the facts about the files that a flow reads, as its job last reported them.

    A file is a topic of one partition, of bytes or rows. While no job reads the files, they are those of the
    ledger.
    """
    driver = job.flows.get(flow)
    reports = {key.at: report for key, (_, report) in job.partitions.items() if key.flow == flow}
    ids = {key.at: made.source_topic_id for key, made in progress.items()}
    why = f"job {job.seen.name} does not report it"
    if job.seen.up and driver is not None:
        why = driver.why
    return ClusterFacts(
        name=lines.endpoint,
        answers=not why,
        why=why,
        topics={
            at.topic: TopicFacts(ids.get(at, b""), at.partition + 1, first=at.partition)
            for at in reports or ids
        },
        starts=dict.fromkeys(reports, 0),
        ends={at: report.source_end for at, report in reports.items()},
    )


class PartitionFacts:
    """Selects what was read about one partition of a flow, and derives its status.

    `report` is the newest report of a slot, and `slot` the report that holds it. Where the source does not
    answer, `source_end` is its end as the job saw it at `source_end_seen_ms`.
    """

    def __init__(self, flow: FlowFacts, key: PartitionKey) -> None:
        self.flow, self.key = flow, key
        self.progress = flow.progress.get(key)
        self.slot: SlotReport | None = None
        self.report: PartitionStatus | None = None
        if key in flow.job.partitions:
            self.slot, self.report = flow.job.partitions[key]
        self.at_source = key.at
        self.destination_topic = (
            self.progress.destination_topic if self.progress is not None else flow.names[key.topic]
        )
        self.at_destination = (
            TopicPartition(self.destination_topic, key.partition)
            if self.destination_topic is not None
            else None
        )
        self.promoted = key.topic in flow.promoted
        self.source_start = flow.source.starts.get(self.at_source)
        self.source_end, self.source_end_seen_ms = self._source_end()
        self.lag_records = self._lag_records()
        self.lag_ms = self._lag_ms() if self.source_end_seen_ms is None else None
        if self.promoted or flow.handed_over:  # later records of its source are not the flow's to copy
            self.lag_records = self.lag_ms = 0

    def _source_end(self) -> tuple[int | None, int | None]:
        """Returns the source's end offset, and when the job saw it if the source does not answer."""
        end = self.flow.source.ends.get(self.at_source)
        if end is not None or self.flow.source.answers:
            return end, None
        seen: list[tuple[int, int]] = []
        if self.slot is not None and self.report is not None and self.report.source_end >= 0:
            seen.append((self.report.last_fetch_ms or self.slot.at_ms, self.report.source_end))
        paused = self.flow.job.ends.get(self.key.flow)
        if paused is not None and self.key.partition in paused.topics.get(self.key.topic, {}):
            seen.append((paused.at_ms, paused.topics[self.key.topic][self.key.partition]))
        seen_ms, end = max(seen, default=(None, None))
        return end, seen_ms

    def _lag_records(self) -> int | None:
        """Returns the lag in records. For a partition that was never begun it is the whole log.

        It is None where the destination could not be read, because then the partition may have been begun.
        """
        if self.source_end is None or not self.flow.destination_read:
            return None
        copied_to = self.progress.position if self.progress is not None else self.source_start
        return max(self.source_end - copied_to, 0) if copied_to is not None else None

    def _lag_ms(self) -> int | None:
        report, progress = self.report, self.progress
        # The time of the slot's last fetch, not of its last report: the link may have failed in between.
        caught_up = report is not None and report.lag_records == 0
        return lag_ms(
            self.lag_records,
            self.flow.now_ms,
            first_missing_ms=self.flow.source.first_missing.get(self.key),
            caught_up_ms=report.last_fetch_ms if report is not None and caught_up else None,
            newest_copied_ms=progress.last_timestamp if progress is not None else None,
        )

    def status(self) -> PartitionHealth:
        """Returns the status of the partition."""
        flow, key, progress, report = self.flow, self.key, self.progress, self.report
        state, since_ms, why = self.state()
        lag_records, lag_ms = self.lag_records, self.lag_ms
        if state in ANOTHER_LOG:  # the ledger's position belongs to a log that was replaced
            lag_records = lag_ms = None
        blocked_by = report.blocked_by if report is not None and state == S.BLOCKED_AT_SOURCE else None
        caught_up_since_ms = report.caught_up_since_ms if report is not None and lag_records == 0 else 0
        before = flow.before.get(key)
        destination, at = flow.destination, self.at_destination
        return PartitionHealth(
            topic=key.topic,
            partition=key.partition,
            destination_topic=self.destination_topic,
            state=str(state),
            since_ms=since_ms,
            why=why,
            needs_someone=state in _WAITS_FOR_OPERATOR,
            foreign_writes=report.foreign_writes if report is not None else False,
            slot=self.slot.slot if self.slot is not None and flow.job.seen.up else None,
            source_start=self.source_start,
            source_end=self.source_end,
            source_end_seen_ms=self.source_end_seen_ms,
            source_high_watermark=flow.source.highs.get(self.at_source),
            destination_start=destination.starts.get(at) if at is not None else None,
            destination_end=destination.ends.get(at) if at is not None else None,
            position=progress.position if progress is not None else None,
            lag_records=lag_records,
            lag_ms=lag_ms,
            last_fetch_ms=_time_or_none(report.last_fetch_ms) if report is not None else None,
            last_commit_ms=_time_or_none(progress.written_at) if progress is not None else None,
            last_timestamp_ms=_time_or_none(progress.last_timestamp) if progress is not None else None,
            caught_up_since_ms=_time_or_none(caught_up_since_ms),
            records=progress.records if progress is not None else 0,
            bytes=progress.bytes if progress is not None else 0,
            dropped=progress.dropped if progress is not None else 0,
            given_up=sum(gap.end - gap.low for gap in progress.gaps) if progress is not None else 0,
            records_per_s=rate(progress.records, before.records, flow.elapsed_ms)
            if progress and before
            else None,
            bytes_per_s=rate(progress.bytes, before.bytes, flow.elapsed_ms) if progress and before else None,
            blocked_by=blocked_by,
            next=blocked_by.abort_command if blocked_by else next_step(state, *key, flow.declared.with_files),
            quarantined=progress.quarantined if progress is not None else 0,
            tombstones=progress.tombstones if progress is not None else 0,
        )

    def state(self) -> _StateDetail:
        """Returns the state of the partition."""
        flow = self.flow
        if not flow.destination_read:
            return UNKNOWN, None, f"{flow.destination.name} does not answer"
        if self.promoted:
            return S.PROMOTED, None, "promoted on its own"
        generation = flow.generation
        if generation is not None and generation.state in ("promoted", "failed_over"):
            return generation.state, generation.written_at, generation.note
        evidence = self._stopped_by_evidence()
        if evidence is not None:
            state, why = evidence
            if self.report is not None and self.report.state == state:
                return state, self.report.since_ms or None, self.report.why or why
            return state, None, why
        if generation is not None and generation.state == "paused":
            return S.PAUSED, generation.written_at, generation.note
        if flow.job.seen.up:
            return self._reported()
        job, report = flow.job.seen, self.report
        why = f"job {job.name}: {job.why}"
        if report is not None and report.state.needs_decision:
            why += f"; before that {report.state}: {report.why}"
        return DOWN, job.heartbeat_ms, why

    def _stopped_by_evidence(self) -> tuple[S, str] | None:
        """Returns the state in which both sides show that the partition must stop, whatever its job says.

        The partition continues only when the topology or an operator says how (R4).
        """
        progress, source, destination = self.progress, self.flow.source, self.flow.destination
        if progress is None:
            return None
        topic, mirror = self.key.topic, progress.destination_topic
        if source.topics is not None:
            listed = source.topics.get(topic)
            if listed is None or self.key.partition >= listed.partitions:
                return S.SOURCE_DELETED, f"{topic} is gone from {source.name}"
            if is_other_topic(progress.source_topic_id, listed.id):
                return S.RECREATED, f"{topic} at {source.name} was deleted and made again"
        if destination.topics is not None:
            listed = destination.topics.get(mirror)
            if listed is None:
                return S.RECREATED, f"{mirror} is gone from {destination.name}"
            if is_other_topic(progress.destination_topic_id, listed.id):
                return S.RECREATED, f"{mirror} at {destination.name} was deleted and made again"
        if self.source_start is not None and progress.position < self.source_start:
            lost = f"offsets {progress.position} to {self.source_start - 1}"
            return S.DATA_LOSS, f"{lost} are gone from {source.name} and were not copied"
        high = source.highs.get(self.at_source)
        if high is not None and progress.position > high:
            return S.DIVERGED, f"{source.name} ends at {high}, {progress.position} was copied already"
        end = destination.highs.get(self.at_destination) if self.at_destination is not None else None
        if end is not None and end < progress.destination_end:
            written = progress.destination_end
            return S.DIVERGED, f"{destination.name} ends at {end}, {written} was written already"
        return None

    def _reported(self) -> _StateDetail:
        """Returns the state that the live job reports, as far as the data agrees."""
        flow, slot, report = self.flow, self.slot, self.report
        if slot is None or report is None:
            return self._unreported()
        # Both times are from the job's side: this machine's clock does not matter.
        silent_ms = (flow.job.seen.heartbeat_ms or 0) - slot.at_ms
        if silent_ms > SILENT_MS:
            seen = next((seen for seen in flow.job.seen.slots if seen.slot == slot.slot), None)
            why = f"slot {slot.slot} has said nothing for {duration(silent_ms)}"
            if seen is not None and seen.state == "unscheduled":
                return S.UNSCHEDULED, seen.since_ms, seen.why or why
            return S.RETRYING, slot.at_ms, why
        if report.state is S.CAUGHT_UP and not flow.source.answers:
            why = f"{flow.source.name} does not answer; the job says {report.state}, but there may be more"
            return UNKNOWN, None, why
        lag_records = self.lag_records if self.source_end_seen_ms is None else None
        if report.state not in _COPIES or lag_records is None:
            return report.state, report.since_ms or None, report.why
        state = S.COPYING if lag_records else S.CAUGHT_UP
        if lag_records:
            written_ms = self.progress.written_at if self.progress is not None else report.since_ms
            idle_ms = flow.now_ms - written_ms
            longest_ms = STALLED_MS + 2 * flow.declared.commits_every_ms
            if idle_ms > longest_ms and (self.lag_ms or 0) > longest_ms:
                why = f"the job says {report.state}, but nothing was committed for {duration(idle_ms)}"
                return STALLED, flow.now_ms - idle_ms, why
        since_ms = report.since_ms if report.state is state else slot.at_ms
        return state, since_ms or None, report.why

    def _unreported(self) -> _StateDetail:
        """Returns the state of a partition whose job runs, but of which no slot has reported anything."""
        job = self.flow.job
        driver = job.flows.get(self.key.flow)
        if driver is None:
            return DOWN, None, f"job {job.seen.name} runs without this flow"
        if driver.why:
            return S.RETRYING, None, driver.why
        slots = job.seen.slots
        if slots and not any(slot.state == "running" for slot in slots):
            state = S.UNSCHEDULED if slots[0].state == "unscheduled" else S.STARTING
            return state, slots[0].since_ms, slots[0].why
        return S.STARTING, None, "no slot has it yet"


def _time_or_none(ms: int) -> int | None:
    return ms if ms > 0 else None
