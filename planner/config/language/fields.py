"""The result of reading: values by key, with their places."""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from planner.config.hints import describe
from planner.model.diagnostic import Diagnostic, SourceLocation, error
from planner.model.shapes import RecordShape


class Invalid(Enum):
    """Stands in for a value that was wrong and is reported already."""

    INVALID = 0


INVALID: Final = Invalid.INVALID


@dataclass(frozen=True, slots=True)
class NamedReference:
    """A reference to a name, with the place to show if the name does not exist."""

    text: str
    source: SourceLocation


@dataclass(slots=True)
class ParsedRecord:
    """One record that was read: `values` has the valid keys, `places` all keys that were written."""

    record: RecordShape
    source: SourceLocation
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, SourceLocation] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def get(self, name: str) -> Any:
        """Returns a value; None for a key that is missing, off or invalid."""
        return self.values.get(name)

    def place(self, name: str) -> SourceLocation:
        return self.places.get(name, self.source)


def missing(fields: ParsedRecord, misspelt: Collection[str | None] = ()) -> list[Diagnostic]:
    """Returns an error for each required key that is missing and not just misspelt."""
    return [
        error(
            f'{fields.record.titled} without "{key.name}"',
            f"add {key.name}: {key.example}" if key.example else f"add {key.name}: {describe(key.shape)}",
            source=fields.source,
        )
        for key in fields.record.keys
        if key.required and key.name not in fields.places and key.name not in misspelt
    ]
