"""The language of the topology: shapes of values, and the annotations that declare keys of these shapes.

A field annotated with a Key is a key of the YAML. `record_of` returns the record of such a class: its
keys with shape, sentence, default and example. The reader, the defaults, the JSON Schema, docs/topology.md,
the export of YAML and what a plan compares follow from that record. See docs/internals/adding-a-key.md.

What a job needs unchanged is declared in this package, and a topology's class extends it. A type such as
`Interval` has the limits of a value and its shape.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum, StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Final, Literal, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from runtime.contract.spec.units import in_whole


class SpecStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The base of the classes of a job spec: defaults are left out, and an unknown field is refused."""


class Absent(Enum):
    """Stands for no default: a key that is left out has no value."""

    ABSENT = 0


ABSENT: Final = Absent.ABSENT
Plain = str | int | bool | tuple["Plain", ...] | Absent
LARGEST = 2**63 - 1
CENTURY_MS = 100 * 365 * 24 * 3_600_000


class ValueShape(Enum):
    """The shapes of single values that need no more than a name. The value says what such a key takes."""

    TOPIC_NAME = "a topic's name"
    BOOLEAN = "true or false"
    NUMBER = "a number above 0 such as 50 or 12.5"  # it may have a fraction
    REGEX = "a regular expression for whole names"
    ANY = "any value"  # it is not checked


class Quantity(Enum):
    """The kinds of numbers with a unit. The value says what such a key takes."""

    DURATION = "a duration such as 500ms, 30s or 7d"
    RATE = "a rate such as 50MB/s"
    TIMESTAMP = "a time with its zone such as 2026-01-01T00:00:00Z, or milliseconds since 1970"


@dataclass(frozen=True, slots=True)
class QuantityShape:
    """A number with a unit, from `least` to `most`: in milliseconds, bytes a second, or since 1970."""

    kind: Quantity
    least: int
    most: int

    def text(self, value: int) -> str:
        """Returns a value as YAML writes it."""
        match self.kind:
            case Quantity.DURATION:
                return in_whole(value, "d", "s") or f"{value}ms"
            case Quantity.RATE:
                return f"{value}B/s"
            case Quantity.TIMESTAMP:
                return str(value)


@dataclass(frozen=True, slots=True)
class TextShape:
    """Text as written, which `pattern` matches as a whole. `placed` keeps its place, for references.

    It has at most `longest` characters.
    """

    expected: str = "text"
    pattern: str | None = None
    hint: str = ""
    placed: bool = False
    longest: int | None = None

    def matches(self, text: str) -> bool:
        """Returns whether a text is of this shape."""
        return self.pattern is None or re.fullmatch(self.pattern, text) is not None


@dataclass(frozen=True, slots=True)
class ChoiceShape:
    """One of a few words, as a member of `enum` where there is one.

    `off` may be written `false`, which is how older YAML readers see it.
    """

    words: tuple[str, ...]
    any_case: bool = False
    enum: type[StrEnum] | None = None


@dataclass(frozen=True, slots=True)
class IntegerShape:
    """A whole number. With `quoted` it may stand in quotes, as every key of JSON does."""

    least: int = 0
    most: int = 2**31 - 1
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class SettingsShape:
    """A map of Kafka's settings. Durations and sizes are read for names that end in `.ms` and `.bytes`.

    `client`: settings of a cluster's clients, from an allow-list; credentials may be references.
    `store`: the same for the client of an object store.
    `public`: the plan and the product's topics show them, so a setting that holds a secret is refused.
    """

    client: bool = False
    store: bool = False
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

    key: "TextShape | IntegerShape | ValueShape"
    value: "Shape"
    named: str
    least: int = 0


@dataclass(frozen=True, slots=True)
class RecordShape:
    """Describes a map whose keys the language knows.

    `titled` names it in errors: "a flow". `declared_by` is the dataclass that its values become.
    """

    name: str
    titled: str
    keys: tuple["Key", ...]
    doc: str = ""
    declared_by: type | None = None
    by_name: dict[str, "Key"] = field(init=False, compare=False, hash=False, repr=False)

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


Shape = (
    ValueShape
    | QuantityShape
    | TextShape
    | ChoiceShape
    | IntegerShape
    | SettingsShape
    | ListShape
    | MapShape
    | RecordShape
    | AlternativesShape
    | OffOrShape
)


UNIT = "_ms"  # the end of a field's name that its key does not have
NOT_KEPT = object()  # stands for the default of a class variable: a key that the loader uses up


@dataclass(frozen=True, slots=True)
class RecordName:
    """Names the map that a dataclass is written as: in links and schemas by `name`, in errors by `titled`.

    `doc` is the sentence about it; without one, the first paragraph of the class's docstring is.
    """

    name: str
    titled: str
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A map in the YAML whose keys are fields of the dataclass around it.

    `acls: {sync: true}` is the field `acls_sync`. With `off`, the word may stand in place of the map; then
    the first field of the section is None.
    """

    key: str
    doc: str
    record: RecordName
    _: KW_ONLY
    example: str
    off: bool = False
    inherited: bool = False


FROM_TYPE: Final = TextShape("as the field's type says")


@dataclass(frozen=True, slots=True)
class Key:
    """Declares a field as a key of the YAML. In a record, it is complete: with what follows from the field.

    shape: how the value is written; FROM_TYPE where the field's type says enough.
    name: the key; without one it is the field's name, less `_ms`.
    default: the default as YAML writes it, where it does not follow from the field's default.
    default_doc: the words for a default that is no plain value.
    inherited: the key may also stand under `defaults`.
    section: the map inside the record in which the key stands.
    converter: the name of the hand-written functions that read and write the value.
    each: the YAML takes a list, and every item of it makes one object.
    required: the YAML must have the key although the field has a default.
    unset: without the key there is no record, not one of defaults.
    unless: the key may be missing where this one is there.
    after: the inherited key that this one follows; without it, the key follows all inherited ones.
    field: the field that takes the value; empty for a section, whose own keys name their fields, and for a
        key that the topology does not keep.
    """

    doc: str
    shape: Shape = FROM_TYPE
    _: KW_ONLY
    example: str
    name: str = ""
    default: Plain = ABSENT
    default_doc: str = ""
    inherited: bool = False
    section: Section | None = None
    converter: str = ""
    each: bool = False
    required: bool = False
    unset: bool = False
    unless: str = ""
    after: str = ""
    field: str = ""


# The limits of numbers and texts wherever they are read from: the YAML, a job spec, a command, a record.
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
Several = Annotated[int, Meta(ge=1, le=1_000_000)]
Replication = Annotated[int, Meta(ge=1, le=32_767)]
Offset = Annotated[int, Meta(ge=0, le=LARGEST)]
Duration = Annotated[int, Meta(ge=0, le=LARGEST), Quantity.DURATION]
Interval = Annotated[int, Meta(ge=1, le=CENTURY_MS), Quantity.DURATION]
Rate = Annotated[int, Meta(ge=1, le=LARGEST), Quantity.RATE]
Timestamp = Annotated[int, Meta(ge=0, le=LARGEST), Quantity.TIMESTAMP]
Regex = Annotated[str, Meta(max_length=65_536), ValueShape.REGEX]


@cache
def record_of(declared: type) -> RecordShape:
    """Returns the record that a dataclass declares, with its keys in the order of its fields."""
    record: RecordName = declared.record  # type: ignore[attr-defined]  # every declaring class has one
    return RecordShape(record.name, record.titled, tuple(_keys(declared)), _doc(record, declared), declared)


@cache
def defaults_of(declared: type, record: RecordName) -> RecordShape:
    """Returns the record of the keys that may stand under `defaults` for such a dataclass."""
    keys = tuple(key for key in record_of(declared).keys if key.inherited)
    return RecordShape(record.name, record.titled, keys, record.doc)


def _doc(record: RecordName, declared: type) -> str:
    first, _, _ = (declared.__doc__ or "").strip().partition("\n\n")
    return record.doc or " ".join(first.split())


def _keys(declared: type) -> Iterator[Key]:
    """Yields the keys: required ones first, then those of base classes, then its own."""
    hints = _ordered(declared)
    defaults = defaults_of_fields(declared)
    sections: set[Section] = set()
    for name, (kind, note) in hints.items():
        if note.section is None:
            yield _key(name, kind, note, defaults.get(name, NOT_KEPT))
        elif note.section not in sections:
            sections.add(note.section)
            parts = [
                _key(field, inner, key, defaults[field])
                for field, (inner, key) in hints.items()
                if key.section == note.section
            ]
            yield _section(note.section, parts)


def _ordered(declared: type) -> dict[str, tuple[Any, Key]]:
    """Returns the type and the declaration of each key, in the order of the language."""
    declarations: dict[str, tuple[Any, Key]] = {}
    for name, hint in get_type_hints(declared, include_extras=True).items():
        kind, note = _annotated(hint)
        if note is not None:
            declarations[name] = kind, note
    inherited = [name for name in declarations if not _declares(declared, name)]
    names = [name for name in declarations if name not in inherited]
    if inherited:
        required = [name for name in names if defaults_of_fields(declared)[name] is dataclasses.MISSING]
        follow = {name: declarations[name][1].after for name in names if declarations[name][1].after}
        order = [*required, *inherited]
        for name, before in reversed(follow.items()):
            order.insert(order.index(before) + 1, name)
        names = [*order, *(name for name in names if name not in order)]
    return {name: declarations[name] for name in names}


def _declares(declared: type, name: str) -> bool:
    """Returns whether the class is the first that declares this key."""
    return not any(name in getattr(base, "__annotations__", {}) for base in declared.__mro__[1:])


def _section(section: Section, keys: list[Key]) -> Key:
    record = RecordShape(section.record.name, section.record.titled, tuple(keys), section.record.doc)
    shape = OffOrShape(record) if section.off else record
    return Key(section.doc, shape, name=section.key, example=section.example, inherited=section.inherited)


def _key(field: str, kind: Any, note: Key, default: Any) -> Key:
    shape = _shape(kind) if note.shape is FROM_TYPE else _limited(note.shape, kind)
    if note.unset and isinstance(shape, OffOrShape):
        shape = shape.shape
    is_record = isinstance(shape, RecordShape | OffOrShape)
    required = note.required or (
        default in (dataclasses.MISSING, NOT_KEPT) and note.default is ABSENT and not note.default_doc
    )
    plain, described = note.default, note.default_doc
    if not (required or is_record or described) and plain is ABSENT:
        plain, described = _shown(shape, default)
    return dataclasses.replace(
        note,
        name=note.name or field.removesuffix(UNIT),
        shape=shape,
        default=plain,
        default_doc=described,
        required=required,
        field=field if default is not NOT_KEPT else "",
    )


@cache
def defaults_of_fields(declared: Any) -> dict[str, Any]:
    """Returns the default of each field of a Struct or a dataclass; MISSING for one without."""
    of_struct = issubclass(declared, msgspec.Struct)
    parts: tuple[Any, ...] = (msgspec.structs if of_struct else dataclasses).fields(declared)
    absent = (msgspec.NODEFAULT, dataclasses.MISSING)
    return {
        part.name: part.default_factory()
        if part.default_factory not in absent
        else dataclasses.MISSING
        if part.default in absent
        else part.default
        for part in parts
    }


def _shown(shape: Shape, default: Any) -> tuple[Plain, str]:
    """Returns a field's default as YAML writes it, or words for one that is no plain value."""
    if default is None:
        return ABSENT, "unset"
    if isinstance(default, Mapping):
        return ABSENT, "empty"
    if isinstance(default, StrEnum):
        return default.value, ""
    if isinstance(shape, QuantityShape):
        return shape.text(default), ""
    return default, ""


def _annotated(hint: Any) -> tuple[Any, Key | None]:
    """Returns a field's type and its declaration; None for a field that is no key."""
    if get_origin(hint) is ClassVar:
        hint = get_args(hint)[0]
    if get_origin(hint) is not Annotated:
        return hint, None
    key = next((note for note in hint.__metadata__ if isinstance(note, Key)), None)
    others = tuple(note for note in hint.__metadata__ if note is not key)
    return (Annotated[hint.__origin__, *others] if others else hint.__origin__), key


def _shape(kind: Any) -> Shape:
    """Returns the shape that follows from a type alone."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _annotated_shape(kind)
    if origin in (Union, UnionType):
        inner = next(part for part in arguments if part is not NoneType)
        shape = _shape(inner)
        return OffOrShape(shape) if isinstance(shape, RecordShape) else shape
    if origin is Literal:
        return ChoiceShape(arguments)
    if origin is tuple:
        return _list_of(_shape(arguments[0]))
    if kind is bool:
        return ValueShape.BOOLEAN
    if kind is str:
        return TextShape()
    if issubclass(kind, StrEnum):
        return ChoiceShape(tuple(member.value for member in kind), enum=kind)
    return record_of(kind)


def _annotated_shape(kind: Any) -> Shape:
    """Returns the shape that a type such as `Interval` names, or a whole number, within the type's limits."""
    meta = _limits(kind)
    for note in reversed(kind.__metadata__):
        if isinstance(note, Quantity):
            least = int(meta.ge or 0)  # zero is a time, and neither a duration nor a rate
            return QuantityShape(
                note, least if note is Quantity.TIMESTAMP else max(1, least), int(cast(int, meta.le))
            )
        if isinstance(note, get_args(Shape)):
            return _limited(cast(Shape, note), kind)
    if get_origin(kind.__origin__) is tuple:
        return _list_of(_shape(get_args(kind.__origin__)[0]), meta.min_length or 0)
    assert kind.__origin__ is int
    return IntegerShape(int(meta.ge or 0), int(meta.le) if meta.le is not None else IntegerShape().most)


def _limits(kind: Any) -> Meta:
    """Returns the limits of a type, which may have none."""
    return next((note for note in getattr(kind, "__metadata__", ()) if isinstance(note, Meta)), Meta())


def _limited(shape: Shape, kind: Any) -> Shape:
    """Returns a shape of text with the longest text that its type takes."""
    if isinstance(shape, TextShape):
        return dataclasses.replace(shape, longest=_limits(kind).max_length)
    return shape


def _list_of(item: Shape, least: int = 0) -> ListShape:
    """Returns a list; one word or text may stand in it without brackets."""
    return ListShape(item, lone=not isinstance(item, RecordShape), least=least)
