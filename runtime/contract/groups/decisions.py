"""Which groups a flow syncs, and what is done with one offset of one of them. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from runtime.contract.groups.translate import At, Nowhere, Pending, Position
from runtime.contract.records.checkpoint import Checkpoint, CheckpointState
from runtime.contract.spec.jobspec import GroupsSpec, JobSpec
from runtime.contract.spec.selection import GROUP_DENIALS, Rules, Selector

_DAY_MS = 24 * 60 * 60 * 1000


class Item(NamedTuple):
    """One offset of a group, by the topic's name at the source."""

    group: str
    topic: str
    partition: int


def group_selector(groups: GroupsSpec) -> Selector:
    rules = groups.selection
    return Selector(
        Rules(tuple(rules.include), tuple(rules.exclude), rules.default_exclude, denials=GROUP_DENIALS)
    )


def own_groups(spec: JobSpec) -> frozenset[str]:
    """Groups that only show how far a flow is (R9): nobody consumes with them, no flow syncs them."""
    named = {flow.origin_commits.group for flow in spec.flows if flow.origin_commits is not None}
    return frozenset(named | {f"repl.{route.name}" for route in spec.routes})


@dataclass(frozen=True, slots=True)
class Seen:
    """One offset of one group. `there`: what is committed at the destination; `wrote`: what this product may
    have put there; `last`: the checkpoint of the time before.
    """

    source: int
    there: int | None
    wrote: Collection[int] = ()
    last: Checkpoint | None = None


@dataclass(frozen=True, slots=True)
class Write:
    offset: int
    clamped: bool = False


@dataclass(frozen=True, slots=True)
class Keep:
    """Nothing is written."""

    state: CheckpointState
    destination: int = -1
    clamped: bool = False
    why: str = ""


Decision = Write | Keep


def decide(found: Position, seen: Seen, now_ms: int) -> Decision:
    """Forward only; back only where the group was rewound at the source and nobody moved it here since."""
    match found:
        case Pending(why=why):
            return Keep(CheckpointState.PENDING, why=why)
        case Nowhere(why=why):
            return Keep(CheckpointState.UNMAPPED, why=why)
        case At(offset=offset, clamped=clamped):
            if seen.there is None or seen.there < offset:
                return Write(offset, clamped)
            if seen.there == offset:
                if _may_expire(seen, offset, now_ms):
                    return Write(offset, clamped)
                return Keep(CheckpointState.TRANSLATED, offset, clamped)
            if seen.there in seen.wrote and _rewound(seen):
                return Write(offset, clamped)
            return Keep(CheckpointState.AHEAD, offset, clamped, f"it stands at {seen.there} already")
        case other:
            assert_never(other)


def is_ours(committed: int, written_by_others: Iterable[Checkpoint]) -> bool:
    """Whether what stands at a flow's source was put there by flows in the other direction."""
    return any(committed in checkpoint.ours for checkpoint in written_by_others)


def _rewound(seen: Seen) -> bool:
    return seen.last is not None and 0 <= seen.source < seen.last.written_source


def _may_expire(seen: Seen, offset: int, now_ms: int) -> bool:
    """Brokers forget the offsets of idle groups after days: what we wrote is said again."""
    last = seen.last
    return last is not None and last.written == offset and now_ms - last.written_ms > _DAY_MS
