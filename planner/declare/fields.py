"""What reading gives: values by key, with the places they stood at."""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from planner.declare.expected import describe
from planner.declare.shapes import Record
from planner.model.diagnostic import Diagnostic, Source, error


class Invalid(Enum):
    """What stands in for a value that was wrong: its diagnostic is gathered already."""

    INVALID = 0


INVALID: Final = Invalid.INVALID


@dataclass(frozen=True, slots=True)
class Placed:
    """A reference, with the place to show when nothing has that name."""

    text: str
    source: Source


@dataclass(slots=True)
class Fields:
    """One record that was read: `values` has the keys that were right, `places` those that were there."""

    record: Record
    source: Source
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, Source] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def get(self, name: str) -> Any:
        """None for a key that was left out, that is off, or that was wrong."""
        return self.values.get(name)

    def place(self, name: str) -> Source:
        return self.places.get(name, self.source)


def missing(fields: Fields, misspelt: Collection[str | None] = ()) -> list[Diagnostic]:
    """The required keys that are not there at all, nor misspelt."""
    return [
        error(
            f'{fields.record.titled} without "{key.name}"',
            f"add {key.name}: {key.example}" if key.example else f"add {key.name}: {describe(key.shape)}",
            source=fields.source,
        )
        for key in fields.record.keys
        if key.required and key.name not in fields.places and key.name not in misspelt
    ]
