"""What reading gives: values by key, with the places they stood at."""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from planner.config.language.expected import describe
from planner.model.diagnostic import Diagnostic, SourceLocation, error
from planner.model.shapes import RecordShape


class Invalid(Enum):
    """What stands in for a value that was wrong: its diagnostic is gathered already."""

    INVALID = 0


INVALID: Final = Invalid.INVALID


@dataclass(frozen=True, slots=True)
class NamedReference:
    """A reference, with the place to show when nothing has that name."""

    text: str
    source: SourceLocation


@dataclass(slots=True)
class ParsedRecord:
    """One record that was read: `values` has the keys that were right, `places` those that were there."""

    record: RecordShape
    source: SourceLocation
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, SourceLocation] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def get(self, name: str) -> Any:
        """None for a key that was left out, that is off, or that was wrong."""
        return self.values.get(name)

    def place(self, name: str) -> SourceLocation:
        return self.places.get(name, self.source)


def missing(fields: ParsedRecord, misspelt: Collection[str | None] = ()) -> list[Diagnostic]:
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
