"""This module takes a flow over for this driver: it writes the generation record, then fences all earlier
writers (R3).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from runtime.contract.records.failback import with_life_of
from runtime.contract.records.ledger import Generation, GenerationKey
from runtime.contract.spec.assignment import transactional_ids
from runtime.contract.spec.jobspec import CopySettings, FlowSpec, State
from runtime.driver.application import SparkSlotRunner
from runtime.driver.clusters import DriverClusters
from runtime.driver.leadership import DriverWriter, Leadership
from runtime.kafka.cluster import KafkaCluster
from runtime.ledger.ledger import Ledger
from runtime.ledger.transaction_writer import fence

LEDGER_LOST = "the ledger was lost"
_NO_GENERATION = Generation(0, "", "stopped", "", [], "", "", 0)


@dataclass(frozen=True, slots=True)
class FlowContext:
    """A FlowContext holds what all flows of a job use.

    `generations` maps flows to their generations in the job's last heartbeat. `holds` returns whether a slot
    may still write for a flow, or for some topics of it. `application` runs the rounds of flows into files.
    """

    job: str
    driver: str
    slots: int
    generations: Mapping[str, int]
    settings: CopySettings
    clusters: DriverClusters
    destination: KafkaCluster
    ledger: Ledger
    writer: DriverWriter
    leadership: Leadership
    changed: Callable[[], None]
    holds: Callable[[str, Collection[str] | None], bool]
    application: SparkSlotRunner | None = None


@dataclass(frozen=True, slots=True)
class TakeoverResult:
    """A TakeoverResult value is the result of a takeover."""

    number: int
    source_cluster_id: str
    ledger_lost: bool


async def take_over(
    spec: FlowSpec,
    shared: FlowContext,
    source_cluster_id: str,
    waits: Callable[[str], None],
    *,
    state: State | None = None,
    note: str = "",
) -> TakeoverResult:
    """Writes the generation record, then fences every id of the generation before until none can still write
    (fencing 3 and 4).

    `state` overrides the spec's state in the record. Raises WireError; the caller then retries from the
    beginning.
    """
    await shared.ledger.decided(spec.name)
    before = shared.ledger.generation(spec.name)
    lost = _is_ledger_lost(spec.name, before, shared)
    mine = _transactional_ids(spec.name, shared)
    last = before or _NO_GENERATION
    older = [one for one in last.transactional_ids if one not in mine]
    record = replace(
        last,
        number=last.number + 1,
        job=shared.job,
        state=state or spec.state,
        driver=shared.driver,
        transactional_ids=[*mine, *older],
        source_cluster_id=source_cluster_id or last.source_cluster_id,
        destination_cluster_id=shared.destination.cluster_id,
        written_at=int(time.time() * 1000),
        note=LEDGER_LOST if lost else note,
        restarted=restart_request(spec) if lost and before is None else last.restarted,
        promoted=_still_promoted(spec, last.promoted),
        promoting=_still_promoted(spec, last.promoting),
    )
    record = with_life_of(before, record)
    await shared.writer.commit({GenerationKey(spec.name): record})
    stuck = await fence(shared.destination, last.transactional_ids)
    while stuck:
        waits(f"{stuck[0]} still waits for a partition that can't take its marker")
        stuck = await fence(shared.destination, stuck)
    if older:  # they were listed until now so that the next driver would fence them if this one died before
        await shared.writer.commit({GenerationKey(spec.name): replace(record, transactional_ids=mine)})
    await shared.ledger.decided(spec.name)
    return TakeoverResult(record.number, record.source_cluster_id, lost)


def restart_request(spec: FlowSpec) -> str:
    """Returns what the generation records once a restart is done, so that no later driver repeats it."""
    return msgspec.json.encode(spec.restart_from).decode() if spec.restart_from is not None else ""


def _still_promoted(spec: FlowSpec, patterns: Collection[str]) -> list[str]:
    """Returns the patterns that stay promoted.

    Topics that a failback or a restart brings back are copied again; the planner has checked that no other
    pattern is gone.
    """
    return [one for one in patterns if one in spec.promoted]


def _is_ledger_lost(flow: str, before: Generation | None, shared: FlowContext) -> bool:
    """Returns whether the ledger lost the flow: the job's heartbeat named a generation that the ledger does
    not hold.

    Then progress is lost too, and starting over would duplicate every record (R1). The flow stays in this
    state until `restart_from` declares a position.
    """
    if before is None:
        return shared.generations.get(flow, 0) > 0
    return before.note == LEDGER_LOST and not shared.ledger.all_progress(flow)


def _transactional_ids(flow: str, shared: FlowContext) -> list[str]:
    slots = range(shared.slots)
    return [one for slot in slots for one in transactional_ids(shared.job, slot, flow, shared.settings)]
