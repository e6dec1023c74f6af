"""What a plan says of topics that are promoted on their own."""

from collections.abc import Collection, Iterable

from planner.graph.messages import few
from planner.model.change import FieldChange
from planner.model.desired import DesiredFlow
from planner.model.topology import ENDED, RUNNING
from runtime.contract.spec.selection import NamePatterns

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
    names = NamePatterns(new_patterns(fields))
    return tuple(topic for topic in flow.promoted if names.match(topic)) if flow is not None else ()


def promoted_reason(fields: Iterable[FieldChange], flow: DesiredFlow | None) -> str:
    """ "" where no topic is promoted."""
    topics = newly_promoted(fields, flow)
    return f"promoted topics: {few(topics, _SHOWN)}" if topics else ""


def promoted_notes(fields: Collection[FieldChange], flow: DesiredFlow | None) -> tuple[str, ...]:
    if flow is None:
        return ()
    there = flow.flow.destination_cluster
    if newly_promoted(fields, flow):
        end = f"then their groups are moved a last time; from then on they are {there}'s own to write"
        return (
            f"what is left of them is copied first, {end}",
            "the flow's other topics go on being copied; one that appears later and matches is not",
        )
    if flow.promoted and _comes_back(fields):
        return (
            f"stays promoted, and is not copied to {there} again: {few(flow.promoted, _SHOWN)}",
            "to have that copied again, take it out of promoted with this very change; later it is refused",
        )
    return ()


def _comes_back(fields: Iterable[FieldChange]) -> bool:
    moved = next(((str(one.old), str(one.new)) for one in fields if one.path == ("state",)), None)
    return moved is not None and moved[0] in ENDED and moved[1] in RUNNING
