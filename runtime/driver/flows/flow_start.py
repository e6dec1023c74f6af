"""This module decides which topics a flow's `start` applies to: those that existed when the flow or its
selection began.

The generation record keeps that, in the transaction of the first positions. Therefore a pause, an edit or the
end of a driver in between never turns a topic that existed into one that appeared later, nor the other way
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
from runtime.driver.flows.takeover import FlowContext
from runtime.kafka.errors import WireError
from runtime.ledger.start_positions import commit_first_positions


def selection(spec: FlowSpec) -> str:
    """Returns a digest that is equal for specs that select the same topics.

    A topic that is new under an unchanged digest appeared later.
    """
    taken = msgspec.json.encode((spec.topics, spec.rename, spec.source), order="sorted")
    return hashlib.sha256(taken).hexdigest()


def initial_topics(
    spec: FlowSpec, generation: Generation | None, taken: Collection[str], known: Collection[str]
) -> frozenset[str]:
    """Returns the topics without progress that `start` applies to, by the ledger's state when the flow is
    first followed.
    """
    begun = generation is not None and generation.begun == selection(spec)
    return frozenset(generation.awaited if generation is not None and begun else taken).difference(known)


def group_by_start(
    spec: FlowSpec,
    initial: Collection[str],
    new: Iterable[AssignedPartition],
    copied: Collection[PartitionKey],
) -> list[tuple[Start | None, list[AssignedPartition]]]:
    """Returns the new partitions grouped by their start: the spec's start, the latest offset for heartbeats,
    or offset 0.

    The spec's start applies to topics in `initial` of which nothing is copied yet. Partitions of all other
    topics, and new partitions of topics that are copied, start at 0.
    """
    copied_topics = {key.topic for key in copied}
    heartbeats: list[AssignedPartition] = []
    at_start: list[AssignedPartition] = []
    later: list[AssignedPartition] = []
    for one in new:
        if one.topic == naming.HEARTBEATS:
            heartbeats.append(one)
        elif one.topic in initial and one.topic not in copied_topics:
            at_start.append(one)
        else:
            later.append(one)
    return [(Latest(), heartbeats), (spec.start, at_start), (None, later)]


async def commit_begun(
    spec: FlowSpec,
    shared: FlowContext,
    number: int,
    first: Mapping[PartitionKey, Progress],
    awaited: Collection[str],
) -> None:
    """Commits first positions, and with the first of a selection the note that the selection began, in one
    transaction (R1).

    The note names the topics that are still awaited. Raises WireError; the caller then retries.
    """
    mine = shared.ledger.generation(spec.name)
    if not first and mine is not None and mine.begun == selection(spec):
        return
    await shared.leadership.ensure()
    await shared.ledger.decided(spec.name)
    mine = shared.ledger.generation(spec.name)
    if mine is None or mine.number != number:
        raise WireError(f"generation {number} of {spec.name} is not the newest any more")
    note: dict[LedgerKey, LedgerValue | None] = {}
    if mine.begun != selection(spec):
        note[GenerationKey(spec.name)] = replace(mine, begun=selection(spec), awaited=sorted(awaited))
    await commit_first_positions(shared.writer, shared.ledger, first, note)
    await shared.ledger.decided(spec.name)
