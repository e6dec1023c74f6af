"""The shapes that a value in the YAML can have, as plain data.

The reader, the JSON Schema, docs/topology.md and the export of YAML work on these shapes. The records
are made from the dataclasses of the topology by `planner.model.keys.record_of`.
"""

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final


class Absent(Enum):
    """Stands for no default: a key that is left out has no value."""

    ABSENT = 0


ABSENT: Final = Absent.ABSENT
Plain = str | int | bool | tuple["Plain", ...] | Absent


@dataclass(frozen=True, slots=True)
class TextShape:
    """Text as written, which `pattern` matches as a whole. `placed` keeps its place, for references."""

    expected: str = "text"
    pattern: str | None = None
    hint: str = ""
    placed: bool = False


@dataclass(frozen=True, slots=True)
class AnyShape:
    """Any value. It is not checked."""

    expected: str = "any value"


@dataclass(frozen=True, slots=True)
class TopicNameShape:
    expected: str = "a topic's name"


@dataclass(frozen=True, slots=True)
class ChoiceShape:
    """One of a few words, as a member of `enum` where there is one.

    `off` may be written `false`, which is how older YAML readers see it.
    """

    words: tuple[str, ...]
    any_case: bool = False
    enum: type[StrEnum] | None = None


@dataclass(frozen=True, slots=True)
class BooleanShape:
    expected: str = "true or false"


@dataclass(frozen=True, slots=True)
class IntegerShape:
    """A whole number. With `quoted` it may stand in quotes, as every key of JSON does."""

    least: int = 0
    most: int = 2**31 - 1
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class DurationShape:
    expected: str = "a duration such as 500ms, 30s or 7d"


@dataclass(frozen=True, slots=True)
class RateShape:
    expected: str = "a rate such as 50MB/s"


@dataclass(frozen=True, slots=True)
class TimestampShape:
    expected: str = "a time with its zone such as 2026-01-01T00:00:00Z, or milliseconds since 1970"


@dataclass(frozen=True, slots=True)
class RegexShape:
    expected: str = "a regular expression for whole names"


@dataclass(frozen=True, slots=True)
class SettingsShape:
    """A map of Kafka's settings. Durations and sizes are read for names that end in `.ms` and `.bytes`.

    `client`: settings of a cluster's clients, from an allow-list; credentials may be references.
    `public`: the plan and the product's topics show them, so a setting that holds a secret is refused.
    """

    client: bool = False
    public: bool = False
    prefix: str = ""
    expected: str = "a map of settings"


@dataclass(frozen=True, slots=True)
class ListShape:
    """A list. With `lone`, one value may stand without brackets."""

    item: "Shape"
    lone: bool = False
    least: int = 0


@dataclass(frozen=True, slots=True)
class MapShape:
    """A map whose keys are names that the user chooses."""

    key: "TextShape | TopicNameShape | IntegerShape"
    value: "Shape"
    named: str
    least: int = 0


@dataclass(frozen=True, slots=True)
class RecordKeyShape:
    """Describes one key of a record.

    `default` is the default as YAML writes it; `default_doc` describes a default that is no plain value.
    `field` is the attribute of the record's dataclass that takes the value. It is empty for a section, whose
    own keys name their fields, and for a key that the topology does not keep. A dotted field belongs to an
    inner dataclass.
    """

    name: str
    shape: "Shape"
    doc: str
    default: Plain = ABSENT
    default_doc: str = ""
    example: str = ""
    required: bool = False
    field: str = ""
    converter: str = ""
    each: bool = False
    inherited: bool = False
    unset: bool = False


@dataclass(frozen=True, slots=True)
class RecordShape:
    """Describes a map whose keys the language knows.

    `titled` names it in errors: "a flow". `declared_by` is the dataclass that its values become.
    """

    name: str
    titled: str
    keys: tuple[RecordKeyShape, ...]
    doc: str = ""
    declared_by: type | None = None
    by_name: dict[str, RecordKeyShape] = field(init=False, compare=False, hash=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {key.name: key for key in self.keys})


@dataclass(frozen=True, slots=True)
class AlternativesShape:
    """One of several shapes: the first one that can take the value is used."""

    alternatives: tuple["Shape", ...]
    expected: str


@dataclass(frozen=True, slots=True)
class OffOrShape:
    """`off`, or a record."""

    shape: "RecordShape"


ScalarShape = (
    TextShape
    | TopicNameShape
    | ChoiceShape
    | BooleanShape
    | IntegerShape
    | DurationShape
    | RateShape
    | TimestampShape
    | RegexShape
)
Shape = (
    ScalarShape
    | AnyShape
    | SettingsShape
    | ListShape
    | MapShape
    | RecordShape
    | AlternativesShape
    | OffOrShape
)
