"""Takes a flow over for this driver, and starts its partitions.

`take_over` writes the generation record, then fences all earlier writers (R3). Partitions start by the flow's
`start` the first time, and by `restart_from` where it starts over.

`start` applies to the topics that existed when the flow or its selection began. The generation record keeps
that, in the transaction of the first positions. Therefore a pause, an edit or the end of a driver in between
never turns a topic that existed into one that appeared later, nor the other way round. `restart_from` copies
records again, once, because the topology declares it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from runtime.contract.records.advance import start_again
from runtime.contract.records.control import AssignedPartition, transactional_ids
from runtime.contract.records.failback import is_restarting, restart_request, with_life_of
from runtime.contract.records.ledger import (
    Generation,
    GenerationKey,
    LedgerKey,
    LedgerValue,
    PartitionKey,
    Progress,
    ProgressKey,
)
from runtime.contract.spec import naming
from runtime.contract.spec.flow import RUNNING, FlowState, Latest, Start
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.selected_topics import SelectedTopics
from runtime.driver.application import SparkSlotRunner
from runtime.driver.clusters import DriverClusters
from runtime.driver.leadership import Leadership
from runtime.driver.slots.membership import NO_SLOTS, Membership, SlotLayout
from runtime.groups.translation import RecordsByCluster
from runtime.kafka.cluster import KafkaCluster
from runtime.kafka.errors import WireError
from runtime.kafka.timing import now_ms
from runtime.ledger.ledger import Ledger
from runtime.ledger.positions import commit_first_positions, first_positions, names
from runtime.ledger.transaction_writer import fence
from runtime.slot import log

LEDGER_LOST = "the ledger was lost"
_NO_GENERATION = Generation(0, "", "stopped", "", [], "", "", 0)


class FlowWaits(WireError):
    """The flow waits for another flow or driver. It is tried again, as after a failure, and is none."""


class DriverContext(Struct, frozen=True):
    """Holds what all flows and slots of a job use.

    `spec` is the one that the job was started with: it says how slots reach clusters and schema registries.
    `generations` maps flows to their generations in the job's last heartbeat. `membership` says which slot
    may still write for a flow. `application` runs the slots, and the rounds of flows with files. `records`
    holds the checkpoints and offset maps of each cluster, `selected` the topics that flows take.
    """

    spec: JobSpec
    driver: str
    clusters: DriverClusters
    destination: KafkaCluster
    ledger: Ledger
    leadership: Leadership
    application: SparkSlotRunner
    changed: Callable[[], None] = lambda: None
    generations: Mapping[str, int] = {}
    layout: SlotLayout = NO_SLOTS
    membership: Membership = field(default_factory=lambda: Membership([]))
    records: RecordsByCluster = field(default_factory=RecordsByCluster)
    selected: SelectedTopics = field(default_factory=SelectedTopics)

    @property
    def job(self) -> str:
        """The name of the job."""
        return self.spec.job


async def take_over(
    spec: FlowSpec,
    shared: DriverContext,
    source_cluster_id: str,
    waits: Callable[[str], None],
    *,
    state: FlowState | None = None,
    note: str = "",
    opposite: str | None = None,
) -> Generation:
    """Writes the generation record, then fences the ids of the generation before it (fencing 3 and 4).

    It returns the record when none of them can still write.

    `state` overrides the spec's state in the record; `opposite` is the flow in the other direction. Raises
    WireError; the caller then retries from the beginning.
    """
    await shared.ledger.decided(spec.name)
    before = shared.ledger.generation(spec.name)
    _check_not_ended(spec, before, opposite)
    lost = is_ledger_lost(spec.name, before, shared)
    mine = [
        transactional_id
        for slot in range(max(len(shared.layout.by_slot), 1))  # rounds have the ids of one slot
        for transactional_id in transactional_ids(shared.job, slot, spec.name, shared.spec.copy)
    ]
    last = before or _NO_GENERATION
    older = [other_id for other_id in last.transactional_ids if other_id not in mine]
    record = replace(
        last,
        number=last.number + 1,
        job=shared.job,
        state=state or spec.state,
        driver=shared.driver,
        transactional_ids=[*mine, *older],
        source_cluster_id=source_cluster_id or last.source_cluster_id,
        destination_cluster_id=shared.destination.cluster_id,
        written_at=now_ms(),
        note=LEDGER_LOST if lost else note,
        restarted=restart_request(spec) if lost and before is None else last.restarted,
        promoted=_still_promoted(spec, last.promoted),
        promoting=_still_promoted(spec, last.promoting),
    )
    record = with_life_of(before, record)
    await shared.leadership.commit({GenerationKey(spec.name): record})
    stuck = await fence(shared.destination, last.transactional_ids)
    while stuck:
        (first, why), more = next(iter(stuck.items())), len(stuck) - 1
        others = f" (and {more} more transactional ids)" if more else ""
        waits(f"{first} is not fenced at {spec.destination_name}: {why}{others}")
        await shared.leadership.ensure()  # the slots of a driver that succeeded this one have the same ids
        stuck = await fence(shared.destination, stuck)
    if older:  # they were listed until now so that the next driver would fence them if this one died before
        await shared.leadership.commit({GenerationKey(spec.name): replace(record, transactional_ids=mine)})
    await shared.ledger.decided(spec.name)
    return record


def _check_not_ended(spec: FlowSpec, before: Generation | None, opposite: str | None) -> None:
    """Raises WireError for a flow that the ledger says has ended, and that the spec would change.

    Applications may write the mirror topics of such a flow by now. An older spec, as a start in a new pod may
    have, must not undo a failover or a promotion. The flow runs again only where its spec says so: by a new
    `restart_from`, or as a failback, which then needs the end of the opposite flow. An end that is not
    complete may become the other one: a failover where the source of a promotion was lost.
    """
    if before is None or before.state in (spec.state, *RUNNING, "stopped") or before.note == LEDGER_LOST:
        return
    may_run = is_restarting(spec, before) or (before.ended and opposite is not None)
    if may_run if spec.state in RUNNING else not before.ended:
        return
    raise WireError(
        f"it is {before.state} by the ledger, and this spec of the job would make it {spec.state}: nothing is"
        f" copied. Run repl apply with state: {before.state} for it. To copy again, use repl failback"
        f" {spec.source_name} or a new restart_from"
    )


def _still_promoted(spec: FlowSpec, patterns: Collection[str]) -> list[str]:
    """Returns the patterns that stay promoted.

    Topics that a failback or a restart brings back are copied again; the planner has checked that no other
    pattern is gone.
    """
    return [pattern for pattern in patterns if pattern in spec.promoted]


def is_ledger_lost(flow: str, generation: Generation | None, shared: DriverContext) -> bool:
    """Returns whether the ledger lost the flow.

    The job's heartbeat then names a generation that the ledger does not hold.

    Then progress is lost too, and starting over would duplicate every record (R1). The flow stays in this
    state until `restart_from` declares a position.
    """
    if generation is None:
        return shared.generations.get(flow, 0) > 0
    return generation.note == LEDGER_LOST and not shared.ledger.all_progress(flow)


def selection(spec: FlowSpec) -> str:
    """Returns a digest that is equal for specs that select the same topics.

    A topic that is new under an unchanged digest appeared later.
    """
    taken = msgspec.json.encode((spec.topics, spec.rename, spec.source), order="sorted")
    return hashlib.sha256(taken).hexdigest()


def initial_topics(
    spec: FlowSpec, generation: Generation | None, taken: Collection[str], copied: Collection[str]
) -> frozenset[str]:
    """Returns the topics without progress that `start` applies to.

    They follow from the state of the ledger when the flow is first followed.
    """
    begun = generation is not None and generation.begun == selection(spec)
    return frozenset(generation.awaited if generation is not None and begun else taken).difference(copied)


def group_by_start(
    spec: FlowSpec,
    initial: Collection[str],
    new: Iterable[AssignedPartition],
    copied: Collection[PartitionKey],
) -> list[tuple[Start | None, list[AssignedPartition]]]:
    """Returns the new partitions grouped by their start.

    A start is the spec's `start`, the latest offset for heartbeats, or offset 0.

    The spec's start applies to topics in `initial` of which nothing is copied yet. Partitions of all other
    topics, and new partitions of topics that are copied, start at 0.
    """
    copied_topics = {key.topic for key in copied}
    heartbeats: list[AssignedPartition] = []
    at_start: list[AssignedPartition] = []
    later: list[AssignedPartition] = []
    for partition in new:
        if partition.topic == naming.HEARTBEATS:
            heartbeats.append(partition)
        elif partition.topic in initial and partition.topic not in copied_topics:
            at_start.append(partition)
        else:
            later.append(partition)
    return [(Latest(), heartbeats), (spec.start, at_start), (None, later)]


async def commit_begun(
    spec: FlowSpec,
    shared: DriverContext,
    number: int,
    first: Mapping[PartitionKey, Progress],
    awaited: Collection[str],
) -> None:
    """Commits first positions in one transaction (R1).

    With the first positions of a selection, it also commits the note that the selection began.

    The note names the topics that are still awaited. Raises WireError; the caller then retries.
    """
    mine = shared.ledger.generation(spec.name)
    if not first and mine is not None and mine.begun == selection(spec):
        return
    await shared.leadership.ensure()
    await shared.ledger.decided(spec.name)
    mine = shared.ledger.generation(spec.name)
    if mine is None or mine.number != number:
        raise FlowWaits(f"generation {number} of {spec.name} is no longer the newest")
    note: dict[LedgerKey, LedgerValue | None] = {}
    if mine.begun != selection(spec):
        note[GenerationKey(spec.name)] = replace(mine, begun=selection(spec), awaited=sorted(awaited))
    await commit_first_positions(shared.leadership, shared.ledger, first, note)
    await shared.ledger.decided(spec.name)


async def restart(
    spec: FlowSpec, shared: DriverContext, source: KafkaCluster, partitions: Iterable[AssignedPartition]
) -> None:
    """Starts a flow over where its spec says so, before any partition is assigned under this generation.

    The partitions that `restart_from` does not name keep their positions; without a ledger there are none.

    New positions, a new map behind what the destination holds, and the note that it was done are one
    transaction: a crash leaves all or nothing (R1). The note is removed together with `restart_from`, so that
    the same value may be declared again later.
    """
    generation, start = shared.ledger.generation(spec.name), spec.restart_from
    if generation is None or generation.restarted == restart_request(spec):
        return
    done = replace(generation, restarted=restart_request(spec))
    records: dict[LedgerKey, LedgerValue | None] = {}
    if start is not None:
        done = replace(done, note="")  # what the ledger lost is replaced
        lost = is_ledger_lost(spec.name, generation, shared)
        restarted = [
            partition
            for partition in partitions
            if partition.topic != naming.HEARTBEATS and (lost or names(start, partition.key.at))
        ]
        starts = await first_positions(source, shared.destination, restarted, start, generation.number)
        for key, first in starts.items():
            records[ProgressKey(key)] = start_again(shared.ledger.decided_progress(key), first)
    await shared.leadership.ensure()
    await shared.leadership.commit({GenerationKey(spec.name): done, **records})
    await shared.ledger.decided(spec.name)
    if start is not None:
        log.info("flow_restarted", key=spec.name, flow=spec.name, partitions=len(records))
