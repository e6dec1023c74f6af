"""A change: one address, what happens to it, why, and which fields move. Values, comparable and printable."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from planner.model.address import Address

Value = str | int | bool | None | tuple[str, ...]

SENSITIVE = "(sensitive value)"  # stands wherever a value is that nobody may read


class Action(StrEnum):
    NO_OP = "no-op"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    REPLACE = "replace"
    FORGET = "forget"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """`path` is ("config", "retention.ms"), ("partitions",), ("replication",), or ("recorded", key) where
    only what the registry remembers moves and the cluster is already as wanted.

    None, old or new, is a value that is not set on the object itself: the cluster's own stands, which
    is `inherited` where it is known.
    """

    path: tuple[str, ...]
    old: Value
    new: Value
    sensitive: bool = False
    note: str = ""
    inherited: str | None = None

    @property
    def key(self) -> str:
        return self.path[-1]


@dataclass(frozen=True, slots=True)
class Change:
    """An object that exists and will only be managed from now on is a NO_OP that is `adopted`."""

    address: Address
    action: Action
    reason: str
    fields: tuple[FieldChange, ...] = ()
    before: Mapping[str, object] | None = None
    after: Mapping[str, object] | None = None
    unchanged: int = 0  # settings that are declared and already so
    adopted: bool = False  # exists already and will be managed from now on
    notes: tuple[str, ...] = field(default=())  # consequences: keys move, records inside, …
