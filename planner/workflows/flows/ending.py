"""Before a flow ends: waits until it has copied everything, and says what its end means for consumer groups.

The status is read again and again. Of the groups it tells positions, and the topics to subscribe to.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from planner.graph.messages import counted, few
from planner.graph.routes import reason_not_synced
from planner.model.diagnostic import Diagnostic, Failure, error, warning
from planner.model.topology import Flow, Topology
from planner.plan.transitions import source_is_silent
from planner.workflows.audit.access import answered, flow_accesses
from planner.workflows.interaction import ProgressHandler
from runtime.contract.records.job_status import NEEDS_DECISION

if TYPE_CHECKING:
    from runtime.contract.results.failover import SchemaCheck
    from runtime.contract.results.groups import FlowLoss, GroupLoss, GroupTopics
    from runtime.contract.results.status import (
        FlowHealth,
        PartitionHealth,
        ReplicationStatus,
        TopicHealth,
    )


SILENT_MS = 10_000  # after this silence a cluster is unreachable
_EVERY_S = 1.0

Chosen = Callable[["FlowHealth"], "Sequence[TopicHealth]"]


async def status_of(
    topology: Topology,
    timeout_s: float,
    over_s: float = 0.0,
    given_up: str | None = None,
    until_alive: Collection[str] = (),
    *,
    every_offset: bool = False,
) -> "ReplicationStatus":
    """Reads the status once. `given_up` is a cluster that is waited for only briefly.

    `over_s` ends early once each job of `until_alive` has sent another heartbeat.
    """
    from planner.workflows.audit.replication_status import status_request
    from runtime.audit.status.reader import read_status

    wanted = status_request(topology, given_up)
    return await read_status(wanted, over_s, timeout_s, until_alive=until_alive, every_offset=every_offset)


async def drained(
    topology: Topology,
    flow: Flow,
    seconds: float,
    progress: ProgressHandler,
    chosen: Chosen | None = None,
) -> None:
    """Waits until nothing is left to copy, of the whole flow or of the topics that `chosen` selects.

    A job that does not run is not waited for: the plan starts it. Failure: the source does not answer, a
    partition waits for a decision, or the time is up. `chosen` may raise Failure too.
    """

    def left_of(health: "FlowHealth") -> str:
        topics = chosen(health) if chosen is not None else health.topics
        if stopped := _stopped(topics):
            what = f"flow.{flow.name} is not promoted: {_reason_of(stopped)}"
            raise Failure(error(what, f"{stopped[0].next}; then run the same command again"))
        return left_to_copy(topics)

    silent = source_is_silent(flow)
    if left := await _left_after(topology, flow, seconds, left_of, progress, silent=silent):
        what = f"flow.{flow.name} is" if chosen is None else f"topics of flow.{flow.name} are"
        raise Failure(
            error(
                f"{what} not promoted after {seconds:.0f} s, it goes on copying: {left}",
                "are the producers stopped? then give it more time: --timeout",
            )
        )


async def copied(topology: Topology, flow: Flow, seconds: float, progress: ProgressHandler) -> None:
    """Waits until everything is copied back that the source holds now. Producers may write on.

    The job must run, and a source that does not answer may come back.
    """
    goal = CopyGoal()
    left = await _left_after(
        topology, flow, seconds, lambda health: goal.left(health.topics), progress, must_run=True
    )
    if left:
        after = f"flow.{flow.name}: records are left to copy back after {seconds:.0f} s"
        raise Failure(
            error(
                f"{after}, it keeps copying: {left}",
                "run the same command again to wait on, or look at repl status",
            )
        )


async def _left_after(
    topology: Topology,
    flow: Flow,
    seconds: float,
    left_of: Callable[["FlowHealth"], str],
    progress: ProgressHandler,
    *,
    silent: Diagnostic | None = None,
    must_run: bool = False,
) -> str:
    """Waits until nothing is left of a flow, and returns ""; or what is left when the time is up.

    Where the source does not answer, raises `silent` if it is given, and waits on otherwise. Where the job
    does not run, raises Failure if it must, and returns "" otherwise.
    """
    from planner.workflows.audit.replication_status import status_request
    from runtime.audit.status.reader import StatusReader

    loop, silence = asyncio.get_running_loop(), SourceSilence()
    deadline = loop.time() + seconds
    async with StatusReader(status_request(topology), SILENT_MS / 1000) as reader:
        await reader.status()

        async def look() -> str:
            status = await reader.status()
            health = next(health for health in status.flows if health.name == flow.name)
            answers = health.source_answers and health.destination_answers
            left = left_of(health) if answers else health.why
            if not left:
                return ""
            if health.destination_answers and silence.lasts(health.source_answers, loop.time()) and silent:
                raise Failure(silent)
            place = (health.job, health.destination)
            if any(job.up for job in status.jobs if (job.name, job.destination) == place):
                return left
            if must_run:
                what = f"job.{flow.job} does not run any more: {left}"
                raise Failure(error(what, "run the same command again"))
            return ""

        return await nothing_left(look, deadline, lambda left: progress(f"flow.{flow.name}: {left}"))


async def nothing_left(
    look: Callable[[], Awaitable[str]],
    deadline: float,
    report: Callable[[str], None],
    every_s: float = _EVERY_S,
) -> str:
    """Looks until nothing is left, and returns ""; or what is left at the deadline. Reports what changed."""
    shown = ""
    while (left := await look()) and asyncio.get_running_loop().time() <= deadline:
        if left != shown:
            report(left)
            shown = left
        await asyncio.sleep(every_s)
    return left


class SourceSilence:
    """A source that never answered is silent at once, one that answered before after SILENT_MS."""

    def __init__(self) -> None:
        self._answered_at: float | None = None

    def lasts(self, answers: bool, now_s: float) -> bool:
        if answers:
            self._answered_at = now_s
        return not answers and (self._answered_at is None or now_s - self._answered_at > SILENT_MS / 1000)


def left_to_copy(topics: "Sequence[TopicHealth]") -> str:
    """Says what is not copied yet, the largest lag first. Partitions that wait for a decision come first."""
    return without_known_lag(topics) or _lags({topic.topic: topic.lag_records or 0 for topic in topics})


class CopyGoal:
    """The ends of a flow's source partitions when they were first known.

    Producers may write on meanwhile, so that the lag is never 0: what they add is not waited for.
    """

    def __init__(self) -> None:
        self._ends: dict[tuple[str, int], int] = {}

    def left(self, topics: "Sequence[TopicHealth]") -> str:
        """Says which records below the goal are left to copy."""
        if unknown := without_known_lag(topics):
            return unknown
        return _lags({topic.topic: sum(map(self._left_of, topic.partitions)) for topic in topics})

    def _left_of(self, partition: "PartitionHealth") -> int:
        lag = partition.lag_records or 0
        if partition.source_end is None or partition.position is None:
            return lag
        end = self._ends.setdefault((partition.topic, partition.partition), partition.source_end)
        return min(lag, max(end - partition.position, 0))


def without_known_lag(topics: "Sequence[TopicHealth]") -> str:
    """Says which partitions wait for a decision, or have a lag that is not known; "" where there is none."""
    if stopped := _stopped(topics):
        return f"{_reason_of(stopped)}. Next: {stopped[0].next}"
    unknown = sorted(topic.topic for topic in topics if not topic.lag_is_known)
    return f"the lag of {', '.join(unknown[:3])} is not known yet" if unknown else ""


def _stopped(topics: "Sequence[TopicHealth]") -> "list[PartitionHealth]":
    """Returns the partitions with records left that wait for a decision, and copy nothing before it."""
    partitions = [partition for topic in topics for partition in topic.partitions]
    return [part for part in partitions if part.state in NEEDS_DECISION and part.lag_records != 0]


def _reason_of(stopped: "Sequence[PartitionHealth]") -> str:
    first = stopped[0]
    named = few([f"{partition.topic}-{partition.partition}" for partition in stopped])
    return f"{named}: {first.state}, {first.why}"


def _lags(lags: Mapping[str, int]) -> str:
    lagging = sorted(((lag, topic) for topic, lag in lags.items() if lag), reverse=True)
    if not lagging:
        return ""
    some = ", ".join(f"{topic} {lag:,}" for lag, topic in lagging[:3])
    more = f", and {len(lagging) - 3} more topics" if len(lagging) > 3 else ""
    return f"{sum(lag for lag, _ in lagging):,} records are left to copy ({some}{more})"


async def group_losses(
    topology: Topology,
    flows: Sequence[Flow],
    within_s: float,
    topics: Mapping[str, Sequence[str]] | None = None,
) -> "list[GroupLoss]":
    """Returns, for each group that the flows sync, where it would continue.

    `topics` limits that to some topics at the source, by flow.
    """
    from runtime.audit.offsets.offsets import rehearse

    synced = [flow for flow in flows if flow.groups.sync]
    accesses = flow_accesses(topology, synced, within_s, source_may_be_gone=True)
    if topics is not None:
        accesses = [replace(access, only=frozenset(topics[access.flow])) for access in accesses]
    return await answered(rehearse(accesses))


class LeftToCopy(Struct, frozen=True):
    """The records of a flow's topics that are not copied yet; None where nobody knows how many.

    `text` says the same for people, and is empty where everything is copied.
    """

    flow: str
    records: int | None
    topics: dict[str, int | None]
    text: str

    @staticmethod
    def of(flow: str, topics: "Sequence[TopicHealth]") -> "LeftToCopy":
        """Counts the records by topic."""
        lags = {topic.topic: topic.lag_records if topic.lag_is_known else None for topic in topics}
        known = [lag for lag in lags.values() if lag is not None]
        return LeftToCopy(flow, sum(known) if len(known) == len(lags) else None, lags, left_to_copy(topics))


class Rehearsal(Struct, frozen=True):
    """What the end of flows would mean: where each group continues, and what its consumers subscribe to.

    Of a promotion, `left` has what its flow has not copied yet. Of a failover, `losses` are the records by
    flow, and `jobs` those that end flows, each with whether it runs: one that does not run is started first.
    `schemas` says of each flow that syncs schemas whether they are at its destination.
    """

    groups: "tuple[GroupLoss, ...]"
    subscriptions: "tuple[GroupTopics, ...]"
    left: tuple[LeftToCopy, ...] = ()
    losses: "tuple[FlowLoss, ...]" = ()
    jobs: tuple[tuple[str, bool], ...] = ()
    schemas: "tuple[SchemaCheck, ...]" = ()

    @staticmethod
    def of(topology: Topology, groups: "Sequence[GroupLoss]", **more: Any) -> "Rehearsal":
        """Returns a rehearsal with the topics that replace those of each group."""
        from runtime.contract.results.groups import GroupTopics

        subscriptions = tuple(
            GroupTopics(
                flow=loss.flow,
                group=loss.group,
                cluster=topology.flows[loss.flow].destination_cluster,
                topics=loss.topics,
            )
            for loss in groups
        )
        return Rehearsal(tuple(groups), subscriptions, **more)


async def groups_moved(topology: Topology, flow: Flow, within_s: float) -> "list[GroupLoss]":
    """Returns, for each group that reads topics of a flow, where it would continue if the flow ended.

    A group that the flow does not sync is kept with all its partitions, and `why` says what keeps it.
    """
    from runtime.audit.offsets.offsets import rehearse

    accesses = flow_accesses(topology, [flow], within_s, every_group=True)
    return [
        _as_synced(loss, reason_not_synced(flow, loss.group)) for loss in await answered(rehearse(accesses))
    ]


def _as_synced(loss: "GroupLoss", unsynced: str) -> "GroupLoss":
    if not unsynced:
        return loss
    kept = loss.exact + loss.again + loss.lost + loss.kept
    return replace(loss, exact=0, again=0, lost=0, records_lost=0, kept=kept, why=unsynced)


async def warn_of_groups_that_stay(
    topology: Topology,
    flow: Flow,
    timeout_s: float,
    progress: ProgressHandler,
    chosen: "Callable[[GroupLoss], bool]" = lambda _: True,
) -> None:
    """Warns of groups that a promotion does not move. What can't be read is a warning too."""
    with failures_as_warnings(progress):
        stay: dict[str, list[str]] = {}
        for loss in await groups_moved(topology, flow, timeout_s):
            if loss.kept and chosen(loss):
                stay.setdefault(loss.why, []).append(loss.group)
        for why, groups in sorted(stay.items()):
            what = f"flow.{flow.name}: {counted(groups, 'group')} is not moved: {why}"
            hint = (
                "its consumers go on at the destination where it stands there, else as auto.offset.reset says"
            )
            progress(warning(what, hint))


async def read_subscriptions(
    topology: Topology, flows: Sequence[Flow], timeout_s: float, progress: ProgressHandler
) -> "tuple[GroupTopics, ...]":
    """Returns what the consumers of each group subscribe to at the destination of flows that ended.

    The apply is done by then: what can't be read is a warning.
    """
    from runtime.audit.offsets.offsets import subscriptions

    syncing = [flow for flow in flows if flow.groups.sync]
    groups: list[GroupTopics] = []
    with failures_as_warnings(progress):
        accesses = flow_accesses(topology, syncing, timeout_s, source_may_be_gone=True)
        groups += await answered(subscriptions(accesses))
    return tuple(groups)


async def warn_of_unread_replays(
    topology: Topology, flows: Sequence[Flow], timeout_s: float, progress: ProgressHandler
) -> None:
    """Warns of groups that would leave out records, once these reverse flows have ended.

    The records were replayed by salvage. Where a flow's groups continue, they lie before the groups' offsets.
    What can't be read is a warning too.
    """
    from runtime.audit.offsets.unread import unread_replays

    reverse = [flow for flow in flows if flow.groups.sync and flow.reverse_of is not None]
    for flow, access in zip(reverse, flow_accesses(topology, reverse, timeout_s), strict=True):
        source, destination = flow.ends
        with failures_as_warnings(progress):
            for left in await answered(unread_replays(access, str(flow.reverse_of))):
                what = (
                    f"the group {left.group} has not read up to {left.records:,} records of {left.topic} "
                    f"at {source} that salvage replayed: once it continues at {destination}, it never "
                    "reads them"
                )
                hint = f"let its consumers read {left.topic} at {source} to the end first"
                progress(warning(what, hint))


@contextmanager
def failures_as_warnings(progress: ProgressHandler) -> Iterator[None]:
    """Reports a failure as warnings."""
    try:
        yield
    except Failure as failure:
        for problem in failure.diagnostics:
            progress(warning(problem.summary, problem.hint))
