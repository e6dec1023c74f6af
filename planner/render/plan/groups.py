"""Groups identical changes: 214 topics that get the same retention are one thing to review."""

from collections.abc import Iterable
from dataclasses import dataclass

from planner.model.address import Kind
from planner.model.change import Action, Change, FieldChange
from planner.render.plan.words import DESTRUCTIVE_FIRST, created_text, field_name, moves, plural, value_text

ARROW = "→"


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """Changes with the same action, kind, cluster, fields and reason."""

    action: Action
    kind: Kind
    cluster: str | None
    reason: str
    fields: tuple[FieldChange, ...]
    notes: tuple[str, ...]
    changes: tuple[Change, ...]

    @property
    def title(self) -> str:
        """Returns the address of a single change, or a count such as `214 topics of dc2`."""
        if len(self.changes) == 1:
            return str(self.changes[0].address)
        where = f" of {self.cluster}" if self.cluster is not None else ""
        return plural(len(self.changes), self.kind.value) + where

    def moved(self) -> list[tuple[str, str]]:
        """Returns each field's name with its value in words: `1d → 3d`."""
        return [(field_name(one), self._value(one)) for one in self.fields]

    def _value(self, field: FieldChange) -> str:
        if self.action is Action.CREATE:
            return created_text(field)
        if not moves(field):
            return value_text(field, field.new if field.new is not None else field.old)
        return f"{value_text(field, field.old)} {ARROW} {value_text(field, field.new)}"


def grouped(changes: Iterable[Change]) -> list[ChangeGroup]:
    """Returns the groups: destructive ones first, then the largest, then by address."""
    alike: dict[tuple[object, ...], list[Change]] = {}
    for one in changes:
        # Destroyed objects are never grouped: each has its own data to lose.
        own = one.address if one.action in (Action.DELETE, Action.REPLACE) else None
        fields = tuple(map(repr, one.fields))  # a value may be a mapping
        key = (one.action, one.address.kind, one.address.cluster, one.reason, fields, one.notes, own)
        alike.setdefault(key, []).append(one)
    groups = [
        ChangeGroup(
            one[0].action,
            one[0].address.kind,
            one[0].address.cluster,
            one[0].reason,
            one[0].fields,
            one[0].notes,
            tuple(one),
        )
        for one in alike.values()
    ]
    rank = {action: number for number, action in enumerate(DESTRUCTIVE_FIRST)}
    return sorted(groups, key=lambda one: (rank[one.action], -len(one.changes), one.changes[0].address))
