"""Which topics a flow's `start` is meant for: those that were there when it, or another selection, began.

Its generation remembers that, in the transaction of the first positions. So whatever comes in between, a
pause, an edit, the end of a driver, neither makes late arrivals of topics that were there nor the other way
round.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from runtime.contract.records.ledger import (
    Generation,
    GenerationKey,
    LedgerKey,
    LedgerValue,
    PartitionKey,
    Progress,
)
from runtime.contract.spec import naming
from runtime.contract.spec.assignment import AssignedPartition
from runtime.contract.spec.jobspec import FlowSpec, Latest, Start
from runtime.driver.flows.takeover import Shared
from runtime.kafka.errors import WireError
from runtime.ledger.start_positions import commit_first_positions


def selection(spec: FlowSpec) -> str:
    """The same for specs that take the same topics: then what is new to the flow came later."""
    taken = msgspec.json.encode((spec.topics, spec.rename, spec.source), order="sorted")
    return hashlib.sha256(taken).hexdigest()


def old_to_it(
    spec: FlowSpec, generation: Generation | None, taken: Collection[str], known: Collection[str]
) -> frozenset[str]:
    """The topics without progress that `start` is meant for, as the ledger says at a first look."""
    begun = generation is not None and generation.begun == selection(spec)
    return frozenset(generation.awaited if generation is not None and begun else taken).difference(known)


def starts(
    spec: FlowSpec,
    initial: Collection[str],
    new: Iterable[AssignedPartition],
    copied: Collection[PartitionKey],
) -> list[tuple[Start | None, list[AssignedPartition]]]:
    """The spec's start is for the topics of `initial`, else it is 0; so for partitions of what is copied."""
    grown = {key.topic for key in copied}
    beats: list[AssignedPartition] = []
    asked: list[AssignedPartition] = []
    later: list[AssignedPartition] = []
    for one in new:
        if one.topic == naming.HEARTBEATS:
            beats.append(one)
        elif one.topic in initial and one.topic not in grown:
            asked.append(one)
        else:
            later.append(one)
    return [(Latest(), beats), (spec.start, asked), (None, later)]


async def commit_begun(
    spec: FlowSpec,
    shared: Shared,
    number: int,
    first: Mapping[PartitionKey, Progress],
    awaited: Collection[str],
) -> None:
    """First positions, and with the first of a selection that it has begun, but for the topics that are still
    awaited: all of it or nothing (R1). Raises WireError: then again.
    """
    mine = shared.ledger.generation(spec.name)
    if not first and mine is not None and mine.begun == selection(spec):
        return
    await shared.pulse.still()
    await shared.ledger.decided(spec.name)
    mine = shared.ledger.generation(spec.name)
    if mine is None or mine.number != number:
        raise WireError(f"generation {number} of {spec.name} is not the newest any more")
    note: dict[LedgerKey, LedgerValue | None] = {}
    if mine.begun != selection(spec):
        note[GenerationKey(spec.name)] = replace(mine, begun=selection(spec), awaited=sorted(awaited))
    await commit_first_positions(shared.writer, shared.ledger, first, note)
    await shared.ledger.decided(spec.name)
