"""A change in one line, for tables: its action and reason, then its fields as `key: old -> new (note)`."""

from planner.diff.differ import diff, drift
from planner.model.change import Change
from tests.fakes.states import desired, observed


def brief(change: Change) -> str:
    adopted = " (adopted)" if change.adopted else ""
    return "; ".join([f"{change.action.value}{adopted}: {change.reason}", *moves(change)])


def moves(change: Change) -> list[str]:
    return [
        f"{one.key}: {one.old} -> {one.new}" + (f" ({one.note})" if one.note else "") for one in change.fields
    ]


def planned(want, *clusters) -> list[Change]:
    """The changes for a wanted object, or for all that is wanted."""
    wanted = want if hasattr(want, "topics") else desired(want)
    return list(diff(wanted, observed(*clusters)))


def drifted(want, *clusters) -> list[Change]:
    return list(drift(want, observed(*clusters)))
