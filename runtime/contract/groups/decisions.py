"""Decides which groups a flow syncs, and whether one offset of a group is written. It is pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from runtime.contract.groups.translate import (
    PendingTranslation,
    Position,
    TranslatedOffset,
    UntranslatableOffset,
)
from runtime.contract.records.checkpoint import Checkpoint, CheckpointState
from runtime.contract.spec.jobspec import GroupsSpec, JobSpec
from runtime.contract.spec.selection import GROUP_DENIALS, SelectionRules, Selector

_DAY_MS = 24 * 60 * 60 * 1000


class GroupPartition(NamedTuple):
    """Identifies one offset of a group, by the topic's name at the source."""

    group: str
    topic: str
    partition: int


def group_selector(groups: GroupsSpec) -> Selector:
    """Returns the selector of the groups that a flow syncs."""
    rules = groups.selection
    return Selector(
        SelectionRules(
            tuple(rules.include), tuple(rules.exclude), rules.default_exclude, denials=GROUP_DENIALS
        )
    )


def own_groups(spec: JobSpec) -> frozenset[str]:
    """Returns the groups that only show how far a flow is (R9): no consumer uses them, no flow syncs them."""
    named = {flow.origin_commits.group for flow in spec.flows if flow.origin_commits is not None}
    return frozenset(named | {f"repl.{route.name}" for route in spec.routes})


@dataclass(frozen=True, slots=True)
class GroupOffsetState:
    """Holds the commits of one group in one partition.

    `there`: the offset committed at the destination; `wrote`: the offsets that this product may have
    committed there; `last`: the previous checkpoint.
    """

    source: int
    destination: int | None
    wrote: Collection[int] = ()
    last: Checkpoint | None = None


@dataclass(frozen=True, slots=True)
class CommitDecision:
    """Says that this offset is committed at the destination."""

    offset: int
    clamped: bool = False


@dataclass(frozen=True, slots=True)
class NoCommitDecision:
    """Says that nothing is written, and why."""

    state: CheckpointState
    destination: int = -1
    clamped: bool = False
    why: str = ""


Decision = CommitDecision | NoCommitDecision


def decide(found: Position, seen: GroupOffsetState, now_ms: int) -> Decision:
    """Decides whether to commit a translated offset at the destination.

    A commit moves forward only. It moves back only where the group was rewound at the source and the offset
    at the destination is still the product's own.
    """
    match found:
        case PendingTranslation(why=why):
            return NoCommitDecision(CheckpointState.PENDING, why=why)
        case UntranslatableOffset(why=why):
            return NoCommitDecision(CheckpointState.UNMAPPED, why=why)
        case TranslatedOffset(offset=offset, clamped=clamped):
            if seen.destination is None or seen.destination < offset:
                return CommitDecision(offset, clamped)
            if seen.destination == offset:
                if _may_expire(seen, offset, now_ms):
                    return CommitDecision(offset, clamped)
                return NoCommitDecision(CheckpointState.TRANSLATED, offset, clamped)
            if seen.destination in seen.wrote and _rewound(seen):
                return CommitDecision(offset, clamped)
            return NoCommitDecision(
                CheckpointState.AHEAD, offset, clamped, f"it stands at {seen.destination} already"
            )
        case other:
            assert_never(other)


def is_ours(committed: int, written_by_others: Iterable[Checkpoint]) -> bool:
    """Returns whether flows in the other direction wrote the offset that is committed at a flow's source."""
    return any(committed in checkpoint.ours for checkpoint in written_by_others)


def _rewound(seen: GroupOffsetState) -> bool:
    return seen.last is not None and 0 <= seen.source < seen.last.written_source


def _may_expire(seen: GroupOffsetState, offset: int, now_ms: int) -> bool:
    """Returns whether an unchanged offset must be committed again.

    Brokers expire the offsets of idle groups after days.
    """
    last = seen.last
    return last is not None and last.written == offset and now_ms - last.written_ms > _DAY_MS
