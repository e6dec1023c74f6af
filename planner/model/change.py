"""What happens with one object: its address, the action, the reason, and which of its fields change.

All are plain values, and not yet text for people.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from planner.model.address import Address

Path = tuple[str, ...]
# A field's value as plain data: durations are milliseconds, rates are bytes per second.
Value = str | int | float | bool | None | tuple[str | int, ...] | Mapping[str, object]
Facts = Mapping[Path, object]  # what is known of one object

SENSITIVE = "(sensitive value)"  # stands in the place of a value that is never shown


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
    """A field with its old and its new value, which are plain data and not yet text.

    `path` is ("config", "retention.ms"), ("partitions",), ("replication",), the topology's name of a key of a
    flow or a job, or ("recorded", key) where the cluster is as wanted and only the registry changes.

    None, old or new, is a value that is not set on the object itself. A topic has the cluster's own value
    then, which is `inherited` where it is known.
    """

    path: Path
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
    """What a plan does with one object.

    An object that exists and will only be managed from now on is a NO_OP that is `adopted`.
    `unknown` says why an UNKNOWN object can't be known. `hint` says what to do; "" means: give the principal
    the right to read. `silent` is its cluster where that does not answer.
    """

    address: Address
    action: Action
    reason: str
    fields: tuple[FieldChange, ...] = ()
    before: Mapping[str, object] | None = None
    after: Mapping[str, object] | None = None
    unchanged: int = 0  # settings that are declared and already so
    adopted: bool = False  # exists already and will be managed from now on
    notes: tuple[str, ...] = ()  # consequences: keys move, records inside, …
    unknown: str = ""
    hint: str = ""
    silent: str | None = None

    def field(self, *path: str) -> FieldChange | None:
        """Returns the field at this path, if it changes."""
        return next((field for field in self.fields if field.path == path), None)
