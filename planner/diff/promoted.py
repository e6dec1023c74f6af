"""What a plan says of topics that are promoted on their own."""

from collections.abc import Collection, Iterable

from planner.model.change import FieldChange
from planner.model.desired import DesiredFlow
from runtime.contract.selection import Names

PROMOTED = "promoted"
_SHOWN = 5


def new_patterns(fields: Iterable[FieldChange]) -> tuple[str, ...]:
    """Those of a flow's change that were not there before."""
    return _moved(fields, added=True)


def gone_patterns(fields: Iterable[FieldChange]) -> tuple[str, ...]:
    return _moved(fields, added=False)


def _moved(fields: Iterable[FieldChange], *, added: bool) -> tuple[str, ...]:
    for one in fields:
        if one.path == (PROMOTED,):
            old, new = _patterns(one.old), _patterns(one.new)
            kept, found = (old, new) if added else (new, old)
            return tuple(pattern for pattern in found if pattern not in kept)
    return ()


def _patterns(value: object) -> Collection[str]:
    return value if isinstance(value, tuple) else ()


def newly_promoted(fields: Iterable[FieldChange], flow: DesiredFlow | None) -> tuple[str, ...]:
    names = Names(new_patterns(fields))
    return tuple(topic for topic in flow.promoted if names.match(topic)) if flow is not None else ()


def promoted_reason(fields: Iterable[FieldChange], flow: DesiredFlow | None) -> str:
    """ "" where no topic is promoted."""
    topics = newly_promoted(fields, flow)
    more = f" and {len(topics) - _SHOWN} more" if len(topics) > _SHOWN else ""
    return f"promoted topics: {', '.join(topics[:_SHOWN])}{more}" if topics else ""


def promoted_notes(fields: Iterable[FieldChange], flow: DesiredFlow | None) -> tuple[str, ...]:
    if flow is None or not newly_promoted(fields, flow):
        return ()
    there = flow.flow.destination_cluster
    end = f"then their groups are moved a last time; from then on they are {there}'s own to write"
    return (
        f"what is left of them is copied first, {end}",
        "the flow's other topics go on being copied; one that appears later and matches is not",
    )
