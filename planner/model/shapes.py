"""The shapes of values in the YAML, and the annotations by which dataclasses declare keys of these shapes.

A field annotated with a Key is a key of the YAML. `record_of` returns the record of such a dataclass: its
keys with shape, sentence, default and example. The reader, the defaults, the JSON Schema, docs/topology.md
and the export of YAML follow from that record. See docs/internals/adding-a-key.md.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum, StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Final, Literal, Union, get_args, get_origin, get_type_hints


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
class NumberShape:
    """A number above zero, which may have a fraction."""

    expected: str = "a number above 0 such as 50 or 12.5"


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

    key: "TextShape | TopicNameShape | IntegerShape | RegexShape"
    value: "Shape"
    named: str
    least: int = 0


@dataclass(frozen=True, slots=True)
class RecordKeyShape:
    """Describes one key of a record.

    `default` is the default as YAML writes it; `default_doc` describes a default that is no plain value.
    `required` keys may be missing where the key `unless` is there.
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
    unless: str = ""


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
    | NumberShape
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


UNIT = "_ms"  # the end of a field's name that its key does not have
NOT_KEPT = object()  # stands for the default of a class variable: a key that the loader uses up
_UNITS = ((86_400_000, "d"), (1_000, "s"), (1, "ms"))


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


@dataclass(frozen=True, slots=True)
class Key:
    """Declares a field as a key of the YAML.

    shape: how the value is written; it follows from the field's type where that says enough.
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
    """

    doc: str
    shape: Shape | None = None
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


@dataclass(frozen=True, slots=True)
class Inline:
    """The keys of the field's dataclass stand in the record itself, those of `without` left out.

    `include` replaces the key named so.
    """

    include: Key
    without: tuple[str, ...] = ()


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


def _keys(declared: type) -> Iterator[RecordKeyShape]:
    hints = {name: _annotated(hint) for name, hint in get_type_hints(declared, include_extras=True).items()}
    defaults = {one.name: _default_of(one) for one in dataclasses.fields(declared)}
    sections: set[Section] = set()
    for name, (kind, note) in hints.items():
        match note:
            case Key(section=Section() as section) if section not in sections:
                sections.add(section)
                parts = [
                    _key(field, of, one, defaults[field])
                    for field, (of, one) in hints.items()
                    if isinstance(one, Key) and one.section == section
                ]
                yield _section(section, parts)
            case Key(section=None):
                yield _key(name, kind, note, defaults.get(name, NOT_KEPT))
            case Inline() as inline:
                yield from _inline(name, kind, inline, defaults[name])


def _section(section: Section, keys: list[RecordKeyShape]) -> RecordKeyShape:
    record = RecordShape(section.record.name, section.record.titled, tuple(keys), section.record.doc)
    shape = OffOrShape(record) if section.off else record
    return RecordKeyShape(
        section.key, shape, section.doc, example=section.example, inherited=section.inherited
    )


def _inline(name: str, kind: Any, inline: Inline, default: Any) -> Iterator[RecordKeyShape]:
    for key in record_of(kind).keys:
        if key.name in inline.without:
            continue
        if key.name == "include":
            key = _key(key.field, tuple[str, ...], inline.include, getattr(default, key.field))
        yield dataclasses.replace(key, field=f"{name}.{key.field}")


def _key(field: str, kind: Any, note: Key, default: Any) -> RecordKeyShape:
    shape = note.shape or _shape(kind)
    if note.unset and isinstance(shape, OffOrShape):
        shape = shape.shape
    is_record = isinstance(shape, RecordShape | OffOrShape)
    required = note.required or (
        default in (dataclasses.MISSING, NOT_KEPT) and note.default is ABSENT and not note.default_doc
    )
    plain, described = note.default, note.default_doc
    if not (required or is_record or described) and plain is ABSENT:
        plain, described = _shown(shape, default)
    return RecordKeyShape(
        name=note.name or field.removesuffix(UNIT),
        shape=shape,
        doc=note.doc,
        default=plain,
        default_doc=described,
        example=note.example,
        required=required,
        field=field if default is not NOT_KEPT else "",
        converter=note.converter,
        each=note.each,
        inherited=note.inherited,
        unset=note.unset,
        unless=note.unless,
    )


def _default_of(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _shown(shape: Shape, default: Any) -> tuple[Plain, str]:
    """Returns a field's default as YAML writes it, or words for one that is no plain value."""
    if default is None:
        return ABSENT, "unset"
    if isinstance(default, Mapping):
        return ABSENT, "empty"
    if isinstance(default, StrEnum):
        return default.value, ""
    if isinstance(shape, DurationShape):
        return next(f"{default // size}{unit}" for size, unit in _UNITS if default % size == 0), ""
    return default, ""


def _annotated(hint: Any) -> tuple[Any, Key | Inline | None]:
    """Returns a field's type and what it declares; nothing for a field that is no key."""
    if get_origin(hint) is ClassVar:
        hint = get_args(hint)[0]
    if get_origin(hint) is not Annotated:
        return hint, None
    kind, *notes = get_args(hint)
    return kind, next((note for note in notes if isinstance(note, Key | Inline)), None)


def _shape(kind: Any) -> Shape:
    """Returns the shape that follows from a type alone."""
    if get_origin(kind) in (Union, UnionType):
        inner = [one for one in get_args(kind) if one is not NoneType]
        shape = _shape(inner[0])
        return OffOrShape(shape) if isinstance(shape, RecordShape) else shape
    if get_origin(kind) is Literal:
        return ChoiceShape(get_args(kind))
    if get_origin(kind) is tuple:
        return ListShape(_shape(get_args(kind)[0]))
    if kind is bool:
        return BooleanShape()
    if kind is str:
        return TextShape()
    if issubclass(kind, StrEnum):
        return ChoiceShape(tuple(one.value for one in kind), enum=kind)
    return record_of(kind)
