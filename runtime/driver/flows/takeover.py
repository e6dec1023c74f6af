"""A flow becomes this driver's: the generation record, then the fence around everybody before it (R3)."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from runtime.contract.records.failback import taken_up
from runtime.contract.records.ledger import Generation, GenerationKey
from runtime.contract.spec.assignment import transactional_ids
from runtime.contract.spec.jobspec import CopySettings, FlowSpec, State
from runtime.driver.clusters import Clusters
from runtime.driver.leadership import Pulse
from runtime.driver.writer import DriverWriter
from runtime.kafka.cluster import Cluster
from runtime.ledger.ledger import Ledger
from runtime.ledger.ledger_writer import fence

LEDGER_LOST = "the ledger was lost"
_NONE = Generation(0, "", "stopped", "", [], "", "", 0)


@dataclass(frozen=True, slots=True)
class Shared:
    """What the flows of a job have in common. `generations`: as the job's last heartbeat named them.
    `holds`: whether a slot may still write for a flow, or for some topics of it.
    """

    job: str
    driver: str
    slots: int
    generations: Mapping[str, int]
    settings: CopySettings
    clusters: Clusters
    destination: Cluster
    ledger: Ledger
    writer: DriverWriter
    pulse: Pulse
    changed: Callable[[], None]
    holds: Callable[[str, Collection[str] | None], bool]


@dataclass(frozen=True, slots=True)
class TakenOver:
    number: int
    source_cluster_id: str
    ledger_lost: bool


async def take_over(
    spec: FlowSpec,
    shared: Shared,
    source_cluster_id: str,
    waits: Callable[[str], None],
    *,
    state: State | None = None,
    note: str = "",
) -> TakenOver:
    """The record first, then every id of the generation before is fenced, until none is left that could
    still write (fencing 3 and 4). `state` is the record's where it is not the spec's. Raises WireError: then
    again from the beginning.
    """
    await shared.ledger.decided(spec.name)
    before = shared.ledger.generation(spec.name)
    lost = _is_lost(spec.name, before, shared)
    mine = _ids(spec.name, shared)
    last = before or _NONE
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
        restarted=wish(spec) if lost and before is None else last.restarted,
        promoted=_still(spec, last.promoted),
        promoting=_still(spec, last.promoting),
    )
    record = taken_up(before, record)
    await shared.writer.commit({GenerationKey(spec.name): record})
    stuck = await fence(shared.destination, last.transactional_ids)
    while stuck:
        waits(f"{stuck[0]} still waits for a partition that can't take its marker")
        stuck = await fence(shared.destination, stuck)
    if older:  # had this driver died before they were fenced, they were the next one's to fence
        await shared.writer.commit({GenerationKey(spec.name): replace(record, transactional_ids=mine)})
    await shared.ledger.decided(spec.name)
    return TakenOver(record.number, record.source_cluster_id, lost)


def wish(spec: FlowSpec) -> str:
    """What the generation remembers once it was carried out, so that no later life does it again."""
    return msgspec.json.encode(spec.restart_from).decode() if spec.restart_from is not None else ""


def _still(spec: FlowSpec, patterns: Collection[str]) -> list[str]:
    """What came home, or starts over, is copied again: the planner saw to it that nothing else is gone."""
    return [one for one in patterns if one in spec.promoted]


def _is_lost(flow: str, before: Generation | None, shared: Shared) -> bool:
    """The job's heartbeat named a generation that the ledger has not: progress is gone too, and starting
    over would double every record (R1). It stays so until `restart_from` says where.
    """
    if before is None:
        return shared.generations.get(flow, 0) > 0
    return before.note == LEDGER_LOST and not shared.ledger.all_progress(flow)


def _ids(flow: str, shared: Shared) -> list[str]:
    slots = range(shared.slots)
    return [one for slot in slots for one in transactional_ids(shared.job, slot, flow, shared.settings)]
