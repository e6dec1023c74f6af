"""Derives the state of each flow, and the output of `repl status`, from two inspections. It is pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import Struct

from runtime.audit.status.facts import (
    ClusterFacts,
    FlowStatusRequest,
    LedgerFacts,
    StatusRequest,
    StatusSnapshot,
    lag_ms,
    longest,
    rate,
    sum_known,
    sum_rates,
)
from runtime.audit.status.states import (
    JobFacts,
    PartitionFacts,
    SlotPartitionReport,
    files_seen,
    judge,
    state_of,
)
from runtime.contract.records.failback import handed_over
from runtime.contract.records.job_status import PartitionState as S
from runtime.contract.records.latency import TopicLatency, by_topic, quantile, summed
from runtime.contract.records.ledger import Generation, PartitionKey, Progress
from runtime.contract.spec import naming
from runtime.contract.spec.selection import NamePatterns
from runtime.contract.views.status_view import (
    DOWN,
    STALLED,
    UNKNOWN,
    ClusterStatusView,
    ClusterTrafficView,
    FlowStatusView,
    PartitionStatusView,
    StatusView,
    TopicLatencyView,
    TopicStatusView,
    next_step,
)
from runtime.kafka.protocol.offsets import TopicPartition

# In order, the worst first: a topic, or a flow, has the worst state of its partitions.
_WORST = (
    UNKNOWN,
    *(state for state in S if state.needs_someone),
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
_ANOTHER_LOG = (S.RECREATED, S.DIVERGED)
_ENDED = (S.PROMOTED, S.FAILED_OVER)
_RANK = {str(state): rank for rank, state in enumerate(_WORST)}


class FlowFacts(Struct, frozen=True):
    """Holds the facts about one flow.

    `read` is False where the destination could not be read. `before` is the ledger at an earlier inspection.
    `names`: the flow's topics and their names at the destination. `handed_over`: the flow has ended, and its
    failback flow began at its end.
    """

    asked: FlowStatusRequest
    source: ClusterFacts
    destination: ClusterFacts
    read: bool
    progress: Mapping[PartitionKey, Progress]
    before: Mapping[PartitionKey, Progress]
    generation: Generation | None
    job: JobFacts
    names: Mapping[str, str | None]
    promoted: frozenset[str]
    handed_over: bool
    now_ms: int
    elapsed_ms: int


def flow_view(flow: FlowFacts) -> FlowStatusView:
    """Returns the status of a flow."""
    begun: dict[str, set[int]] = {}
    for key in (*flow.progress, *(flow.job.partitions if flow.asked.source_endpoint else ())):
        begun.setdefault(key.topic, set()).add(key.partition)
    stats = flow.job.stats.get(flow.asked.name, ()) if flow.job.seen.up else ()
    by_name = by_topic(latency for one in stats for latency in one.latencies)
    topics = [
        _topic(flow, topic, begun.get(topic, set()), by_name.get(topic)) for topic in sorted(flow.names)
    ]
    partitions = [one for topic in topics for one in topic.partitions]
    recent = flow.job.recent.get(flow.asked.name, ()) if flow.job.seen.up else ()
    latencies = recent if any(recent) else summed(one.latency_counts for one in stats)
    lag = longest(one.lag_ms for one in partitions)
    asked, generation = flow.asked, flow.generation
    view = flow.job.flows.get(asked.name)
    state = worst(one.state for one in partitions) or _empty(flow)
    return FlowStatusView(
        name=asked.name,
        source=asked.source_endpoint or asked.source,
        destination=asked.endpoint or asked.destination,
        job=flow.job.seen.name,
        state=state,
        declared=asked.state,
        why=_why(flow, state, partitions),
        notes=list(view.notes) if view is not None and flow.job.seen.up else [],
        source_cluster_id=flow.source.id or _id(view.source_cluster_id if view is not None else ""),
        destination_cluster_id=flow.destination.id,
        source_answers=flow.source.answers,
        destination_answers=flow.read,
        generation=generation.number if generation is not None else None,
        lag_records=sum_known(one.lag_records for one in partitions),
        lag_ms=lag,
        rpo_ms=asked.rpo_ms,
        rpo_met=lag <= asked.rpo_ms if lag is not None and asked.rpo_ms is not None else None,
        records_per_s=sum_rates(one.records_per_s for one in partitions),
        bytes_per_s=sum_rates(one.bytes_per_s for one in partitions),
        latency_p50_ms=quantile(latencies, 0.5),
        latency_p99_ms=quantile(latencies, 0.99),
        latency_over_ms=flow.elapsed_ms if any(recent) else None,
        dropped=sum(one.dropped for one in partitions),
        throttled_ms=sum(one.throttled_ms for one in stats),
        stuck_lanes=[lane for one in stats for lane in one.stuck_lanes],
        link_age_ms=_link_age(flow),
        states=dict(sorted(Counter(one.state for one in partitions).items())),
        topics=topics,
        next=list(dict.fromkeys(one.next for one in partitions if one.next)),
        time_to_loss_ms=min(
            (one.time_to_loss_ms for one in topics if one.time_to_loss_ms is not None), default=None
        ),
        quarantined=sum(one.quarantined for one in partitions),
        tombstones=sum(one.tombstones for one in partitions),
    )


def worst(states: Iterable[str]) -> str | None:
    """Returns the worst of the states; None where there is none."""
    return min(states, key=lambda state: _RANK[state], default=None)


def _id(text: str) -> str | None:
    return text or None


def _empty(flow: FlowFacts) -> str:
    """Returns the state of a flow without a partition."""
    if not flow.read:
        return UNKNOWN
    if flow.generation is not None and flow.generation.state in ("paused", "promoted", "failed_over"):
        return flow.generation.state
    return str(S.STARTING) if flow.job.seen.up else DOWN


def _why(flow: FlowFacts, state: str, partitions: list[PartitionStatusView]) -> str:
    """Returns what hinders the flow, in one line: clusters first, then its job, then its worst partition."""
    reasons = []
    if not flow.source.answers:
        reasons.append(f"source {flow.source.name} does not answer: {flow.source.why}")
    if not flow.read:
        verb = "can't be read" if flow.destination.answers else "does not answer"
        reasons.append(f"destination {flow.destination.name} {verb}: {flow.destination.why}")
    elif not flow.job.seen.up and state in (DOWN, *(str(one) for one in S if one.needs_someone)):
        reasons.append(f"job {flow.job.seen.name}: {flow.job.seen.why}")
    view = flow.job.flows.get(flow.asked.name)
    if view is not None and view.why and flow.job.seen.up:
        reasons.append(view.why)
    held = flow.generation
    if flow.read and held is not None and held.state not in ("stopped", flow.asked.state):
        reasons.append(f"the topology says {flow.asked.state}, it is {held.state}")
    if flow.read and flow.job.seen.name != flow.asked.job:
        reasons.append(f"job {flow.job.seen.name} has it, not {flow.asked.job}")
    if not reasons and flow.source.answers and not flow.names:
        empty = f"{flow.source.name} holds no file"
        reasons.append(empty if flow.asked.source_endpoint else f"no topic at {flow.source.name} matches")
    if not reasons:
        reasons += [
            f"{one.topic}-{one.partition}: {one.why}" for one in partitions if one.state == state and one.why
        ][:1]
    return "; ".join(reasons)


def _link_age(flow: FlowFacts) -> int | None:
    """Returns the age of the newest replicated heartbeat, which measures the link from end to end."""
    beats = flow.progress.get(PartitionKey(flow.asked.name, naming.HEARTBEATS, 0))
    if beats is None or beats.last_timestamp <= 0:
        return None
    return max(flow.now_ms - beats.last_timestamp, 0)


def _topic(flow: FlowFacts, topic: str, begun: set[int], latency: TopicLatency | None) -> TopicStatusView:
    known = flow.source.topics.get(topic) if flow.source.topics is not None else None
    numbers = begun.union(range(known.partitions if known and not flow.asked.source_endpoint else 0))
    partitions = [_partition(flow, PartitionKey(flow.asked.name, topic, one)) for one in sorted(numbers)]
    return TopicStatusView(
        topic=topic,
        destination_topic=flow.names[topic],
        state=worst(one.state for one in partitions) or str(S.STARTING),
        lag_records=sum_known(one.lag_records for one in partitions),
        lag_ms=longest(one.lag_ms for one in partitions),
        records_per_s=sum_rates(one.records_per_s for one in partitions),
        bytes_per_s=sum_rates(one.bytes_per_s for one in partitions),
        partitions=partitions,
        time_to_loss_ms=_time_to_loss(flow, topic, partitions),
        latency=None if latency is None else _latency(latency),
    )


def _latency(found: TopicLatency) -> TopicLatencyView:
    return TopicLatencyView(
        records=found.records,
        min_ms=found.min_ms,
        avg_ms=found.average_ms,
        max_ms=found.max_ms,
        p50_ms=found.quantile(0.5),
        p99_ms=found.quantile(0.99),
    )


def _time_to_loss(flow: FlowFacts, topic: str, partitions: list[PartitionStatusView]) -> int | None:
    """Returns the retention less the longest wait of a record. A flow that has ended loses nothing more."""
    retention = flow.source.retention.get(topic)
    waits = [one.lag_ms for one in partitions]
    ended = flow.handed_over or topic in flow.promoted or all(one.state in _ENDED for one in partitions)
    if retention is None or ended or any(wait is None for wait in waits):
        return None
    return max(retention - max(wait or 0 for wait in waits), 0)


def _partition(flow: FlowFacts, key: PartitionKey) -> PartitionStatusView:
    progress, report = flow.progress.get(key), flow.job.partitions.get(key)
    reported = report.status if report is not None else None
    at_source = TopicPartition(key.topic, key.partition)
    name = progress.destination_topic if progress is not None else flow.names[key.topic]
    at_destination = TopicPartition(name, key.partition) if name is not None else None
    start, end, seen_ms = flow.source.starts.get(at_source), *_source_end(flow, at_source, report)
    lag = _lag(flow, progress, start, end)
    behind = _behind(flow, key, lag, report) if seen_ms is None else None
    promoted = key.topic in flow.promoted
    if promoted or flow.handed_over:  # later records of its source are not the flow's to copy
        lag = behind = 0
    state = state_of(
        PartitionFacts(
            flow=key.flow,
            source_topic=at_source,
            destination_topic=at_destination,
            source=flow.source,
            destination=flow.destination,
            destination_read=flow.read,
            progress=progress,
            generation=flow.generation,
            promoted=promoted,
            job=flow.job,
            report=report,
            lag_records=lag if seen_ms is None else None,
            lag_ms=behind,
            now_ms=flow.now_ms,
            every_ms=flow.asked.every_ms,
        )
    )
    if state.state in _ANOTHER_LOG:  # the ledger's position belongs to a log that was replaced
        lag = behind = None
    blocked_by = reported.blocked_by if reported is not None and state.state == S.BLOCKED_AT_SOURCE else None
    before = flow.before.get(key)
    return PartitionStatusView(
        topic=key.topic,
        partition=key.partition,
        destination_topic=name,
        state=str(state.state),
        since_ms=state.since_ms,
        why=state.why,
        needs_someone=state.needs_someone,
        foreign_writes=reported.foreign_writes if reported is not None else False,
        slot=report.slot if report is not None and flow.job.seen.up else None,
        source_start=start,
        source_end=end,
        source_end_seen_ms=seen_ms,
        source_high_watermark=flow.source.highs.get(at_source),
        destination_start=flow.destination.starts.get(at_destination) if at_destination is not None else None,
        destination_end=flow.destination.ends.get(at_destination) if at_destination is not None else None,
        position=progress.position if progress is not None else None,
        lag_records=lag,
        lag_ms=behind,
        last_fetch_ms=_time_or_none(reported.last_fetch_ms) if reported is not None else None,
        last_commit_ms=_time_or_none(progress.written_at) if progress is not None else None,
        last_timestamp_ms=_time_or_none(progress.last_timestamp) if progress is not None else None,
        caught_up_since_ms=_time_or_none(reported.caught_up_since_ms)
        if reported is not None and lag == 0
        else None,
        records=progress.records if progress is not None else 0,
        bytes=progress.bytes if progress is not None else 0,
        dropped=progress.dropped if progress is not None else 0,
        given_up=sum(gap.end - gap.low for gap in progress.gaps) if progress is not None else 0,
        records_per_s=rate(progress.records, before.records, flow.elapsed_ms)
        if progress and before
        else None,
        bytes_per_s=rate(progress.bytes, before.bytes, flow.elapsed_ms) if progress and before else None,
        blocked_by=blocked_by,
        next=blocked_by.abort_command if blocked_by else next_step(state.state, *key, flow.asked.files),
        quarantined=progress.quarantined if progress is not None else 0,
        tombstones=progress.tombstones if progress is not None else 0,
    )


def _source_end(
    flow: FlowFacts, at_source: TopicPartition, report: SlotPartitionReport | None
) -> tuple[int | None, int | None]:
    """Returns the source's end offset, and its time where the source does not answer: the job saw it then."""
    end = flow.source.ends.get(at_source)
    if end is not None or flow.source.answers:
        return end, None
    known_ends: list[tuple[int, int]] = []
    if report is not None and report.status.source_end >= 0:
        known_ends.append((report.status.last_fetch_ms or report.at_ms, report.status.source_end))
    paused = flow.job.ends.get(flow.asked.name)
    if paused is not None and at_source.partition in paused.topics.get(at_source.topic, {}):
        known_ends.append((paused.at_ms, paused.topics[at_source.topic][at_source.partition]))
    seen_ms, end = max(known_ends, default=(None, None))
    return end, seen_ms


def _lag(flow: FlowFacts, progress: Progress | None, start: int | None, end: int | None) -> int | None:
    """Returns the lag in records. For a partition that was never begun it is the whole log.

    It is None where the destination could not be read, because then the partition may have been begun.
    """
    if end is None or not flow.read:
        return None
    begun = progress.position if progress is not None else start
    return max(end - begun, 0) if begun is not None else None


def _behind(
    flow: FlowFacts, key: PartitionKey, lag: int | None, report: SlotPartitionReport | None
) -> int | None:
    progress = flow.progress.get(key)
    reported = report.status if report is not None else None
    # The time of the slot's last fetch, not of its last report: the link may have failed in between.
    caught_up = reported is not None and reported.position >= reported.source_end >= 0
    return lag_ms(
        lag,
        flow.now_ms,
        first_missing_ms=flow.source.first_missing.get(key),
        caught_up_ms=reported.last_fetch_ms if reported is not None and caught_up else None,
        newest_copied_ms=progress.last_timestamp if progress is not None else None,
    )


def _time_or_none(ms: int) -> int | None:
    return ms if ms > 0 else None


_CURRENT = ("active", "paused")
_NOTHING = LedgerFacts()


def join(asked: StatusRequest, now: StatusSnapshot, before: StatusSnapshot | None = None) -> StatusView:
    """Derives the status. `before` is an earlier inspection, of which only the ledgers matter.

    Rates are computed from the changes since then, and a heartbeat that moved since then shows a live job.
    """
    before = before if before is not None else now
    jobs = _jobs(asked, now, before)
    flows = [_flow(asked, flow, jobs, now, before) for flow in asked.flows]
    return StatusView(
        topology=asked.topology,
        at_ms=now.at_ms,
        over_ms=now.ledgers_ms - before.ledgers_ms,
        clusters=[_cluster(one, flows) for _, one in sorted(now.clusters.items())],
        jobs=[jobs[key].seen for key in sorted(jobs)],
        flows=flows,
    )


def _cluster(found: ClusterFacts, flows: list[FlowStatusView]) -> ClusterStatusView:
    into = [one for one in flows if one.destination == found.name]
    out = [one for one in flows if one.source == found.name]
    traffic = found.traffic
    return ClusterStatusView(
        name=found.name,
        answers=found.answers,
        id=found.id,
        why=found.why,
        records_in_per_s=sum_rates(one.records_per_s for one in into),
        bytes_in_per_s=sum_rates(one.bytes_per_s for one in into),
        records_out_per_s=sum_rates(one.records_per_s for one in out),
        bytes_out_per_s=sum_rates(one.bytes_per_s for one in out),
        traffic=None
        if traffic is None
        else ClusterTrafficView(
            over_ms=traffic.over_ms, records_per_s=traffic.records_per_s, bytes_per_s=traffic.bytes_per_s
        ),
    )


def _jobs(
    asked: StatusRequest, now: StatusSnapshot, before: StatusSnapshot
) -> dict[tuple[str, str], JobFacts]:
    """Returns the jobs by destination and name: the topology's, and others that hold one of its flows."""
    flows: dict[tuple[str, str], list[str]] = {}
    for flow in asked.flows:
        flows.setdefault((flow.destination, flow.job), []).append(flow.name)
        holder = _holder(flow, now.ledgers.get(flow.destination))
        if holder != flow.job:
            flows.setdefault((flow.destination, holder), []).append(flow.name)
    return {
        (destination, job): judge(
            job,
            destination,
            now.ledgers.get(destination),
            before.ledgers.get(destination),
            now.at_ms,
            before.ledgers_ms,
            names,
            asked.standbys.get(job, 0),
        )
        for (destination, job), names in flows.items()
    }


def _holder(flow: FlowStatusRequest, ledger: LedgerFacts | None) -> str:
    """Returns the job that holds the flow by the ledger.

    A flow that the job released belongs to the topology's job again.
    """
    generation = ledger.generations.get(flow.name) if ledger is not None else None
    return generation.job if generation is not None and generation.state in _CURRENT else flow.job


def _flow(
    asked: StatusRequest,
    flow: FlowStatusRequest,
    jobs: Mapping[tuple[str, str], JobFacts],
    now: StatusSnapshot,
    before: StatusSnapshot,
) -> FlowStatusView:
    found = now.ledgers.get(flow.destination)
    ledger, earlier = found or _NOTHING, before.ledgers.get(flow.destination, _NOTHING)
    job = jobs[flow.destination, _holder(flow, found)]
    progress = ledger.progress.get(flow.name, {})
    source = now.clusters[flow.source]
    if flow.source_endpoint:
        source = files_seen(flow.name, flow.source_endpoint, job, progress)
        files = source.topics or {key.topic for key in progress}
        progress = {key: one for key, one in progress.items() if key.topic in files}
    names = _names(asked, flow, source, progress)
    generation = ledger.generations.get(flow.name)
    promoted = NamePatterns(generation.promoted if generation is not None else ())
    return flow_view(
        FlowFacts(
            asked=flow,
            source=source,
            destination=now.clusters[flow.destination],
            read=found is not None,
            progress=progress,
            before=earlier.progress.get(flow.name, {}),
            generation=generation,
            job=job,
            names=names,
            promoted=frozenset(topic for topic in names if promoted.match(topic)),
            handed_over=_handed_over(flow, generation, now),
            now_ms=now.at_ms,
            elapsed_ms=(ledger.read_ms or now.ledgers_ms) - (earlier.read_ms or before.ledgers_ms),
        )
    )


def _handed_over(flow: FlowStatusRequest, generation: Generation | None, now: StatusSnapshot) -> bool:
    back = now.ledgers.get(flow.source, _NOTHING).generations.get(flow.opposite or "")
    return generation is not None and back is not None and handed_over(generation, back)


def _names(
    asked: StatusRequest,
    flow: FlowStatusRequest,
    source: ClusterFacts,
    progress: Mapping[PartitionKey, Progress],
) -> dict[str, str | None]:
    """Returns the topics that the flow takes or has copied, with their names at the destination."""
    if flow.source_endpoint:
        return dict.fromkeys({*(source.topics or {}), *(key.topic for key in progress)}, flow.lines_topic)
    names: dict[str, str | None] = dict(asked.selected(flow, source.topics or {}))
    for key, state in progress.items():
        if key.topic in names or asked.router.destination_topic(flow.name, key.topic) is not None:
            names[key.topic] = state.destination_topic
    return names
