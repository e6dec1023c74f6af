"""Turns the dataclasses of the topology into YAML for people: only the keys that differ from the defaults.

The keys, their order and the form of their values follow from `record_of`. Only the
values of the keys that name a converter are written by hand. Short maps stand on one line, and quotes only
where they are needed.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from datetime import UTC, datetime
from typing import Any, assert_never

from planner.diff.values import in_units, rate
from planner.model.topology import looks_secret, secret_variable
from planner.model.topology.quotas import number_text
from planner.render.readable import UNSHOWABLE
from runtime.contract.client.stores import Setting
from runtime.contract.spec import shapes, units
from runtime.contract.spec.flow import Earliest, Latest, Start
from runtime.contract.spec.rename import Match, Rename, Table, Template
from runtime.contract.spec.shapes import (
    Key,
    Quantity,
    RecordShape,
    Shape,
    ValueShape,
    defaults_of_fields,
    record_of,
)

WIDTH = 110

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_./+-]*|/[A-Za-z0-9_./+-]+")
_BARE_VALUE = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?|\d+(ms|s|m|h|d|w|B|[KMGT]i?B)(/s)?")
_HOST_PORT = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*:\d{1,5}")
# What one YAML reader or another takes for something else than text.
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null", "~", ".nan", ".inf"})
_UNPRINTABLE = re.compile(f"[{UNSHOWABLE}]")


@dataclass(frozen=True, slots=True)
class UnquotedText:
    """A word of the language, or a quantity, which is never quoted."""

    text: str


Value = str | int | bool | UnquotedText | Sequence["Value"] | Mapping[str, "Value"]


def scalar(value: str | int | bool | UnquotedText) -> str:
    match value:
        case UnquotedText(text):
            return text
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return _text(value)


def printable(text: str) -> str:
    """Returns text for a comment: a character that YAML refuses becomes a question mark."""
    return _UNPRINTABLE.sub("?", text.replace("\n", " "))


def setting(value: str) -> str | UnquotedText:
    """Returns the value of a Kafka setting: a number or a quantity is not quoted."""
    if _BARE_VALUE.fullmatch(value) or value in ("true", "false"):
        return UnquotedText(value)
    return value


def _text(value: str) -> str:
    if (_BARE.fullmatch(value) or _HOST_PORT.fullmatch(value)) and value.lower() not in _WORDS:
        return value
    # A brace pair would be computed as an expression, so it is written as one that yields itself.
    value = re.sub(r"\{\{|\{%|\{#", lambda match: "{{ '" + match[0] + "' }}", value)
    if _UNPRINTABLE.search(value) or ('"' in value and "'" in value):
        return '"' + "".join(_escaped(sign) for sign in value) + '"'
    if "\\" in value or '"' in value:
        return "'" + value.replace("'", "''") + "'"
    return f'"{value}"'


def _key(key: str) -> str:
    return key if key.isdecimal() else _text(key)


def _escaped(sign: str) -> str:
    match sign:
        case '"' | "\\":
            return "\\" + sign
        case "\n":
            return "\\n"
        case "\t":
            return "\\t"
        case _ if _UNPRINTABLE.match(sign):
            number = ord(sign)
            return (
                f"\\x{number:02x}"
                if number < 256
                else f"\\u{number:04x}"
                if number < 65536
                else f"\\U{number:08x}"
            )
        case _:
            return sign


def inline(value: Value) -> str:
    """Returns a value on one line: `{a: 1, b: [x, y]}`."""
    match value:
        case str() | int() | UnquotedText():
            return scalar(value)
        case Mapping():
            return "{" + ", ".join(f"{_key(key)}: {inline(member)}" for key, member in value.items()) + "}"
        case _:
            return "[" + ", ".join(inline(member) for member in value) + "]"


def pair(key: str, value: Value, indent: int = 0) -> Iterator[str]:
    """Yields `key: value` on one line if it fits, otherwise the parts below the key."""
    margin = " " * indent
    line = f"{margin}{_key(key)}: {inline(value)}"
    if len(line) <= WIDTH or not _has_parts(value):
        yield line
        return
    yield f"{margin}{_key(key)}:"
    yield from below(value, indent + 2)


def below(value: Value, indent: int) -> Iterator[str]:
    """Yields the parts of a map or list, each on its own lines."""
    match value:
        case Mapping():
            for key, member in value.items():
                yield from pair(key, member, indent)
        case _:
            assert isinstance(value, Sequence)
            assert not isinstance(value, str)
            for member in value:
                yield from item(member, indent)


def item(value: Value, indent: int) -> Iterator[str]:
    """Yields `- value` on one line if it fits, otherwise the parts, the first behind the dash."""
    margin = " " * indent
    line = f"{margin}- {inline(value)}"
    if len(line) <= WIDTH or not _has_parts(value):
        yield line
        return
    lines = below(value, indent + 2)
    yield f"{margin}- {next(lines).lstrip()}"
    yield from lines


def _has_parts(value: Value) -> bool:
    return not isinstance(value, str | int | UnquotedText) and bool(value)


def values_of(declared: Any, usual: Any = None) -> dict[str, Value]:
    """Returns the keys of an object that differ from `usual`, by name, in the order of the language.

    Without `usual`, a key is left out if the keys written before it already give its value: a default may
    follow from another key.
    """
    kind: Any = type(declared)
    return _values(record_of(kind), declared, usual if usual is not None else _Growing(declared))


def duration(milliseconds: int) -> UnquotedText:
    return UnquotedText(units.duration(milliseconds))


class _Growing:
    """An object with the fields that were written so far, and the defaults of all others."""

    def __init__(self, declared: Any) -> None:
        self._type: Any = type(declared)
        record = record_of(declared.__class__)
        keys = {key.field: key for key in record.keys}
        self._given = {
            name: getattr(declared, name)
            for name, default in defaults_of_fields(declared.__class__).items()
            if default is MISSING
        }
        for name, key in keys.items():
            if isinstance(key.shape, shapes.OffOrShape) and key.shape.shape.declared_by is not None:
                self._given[name] = key.shape.shape.declared_by()  # on, unless it is off
        self._usual = self._type(**self._given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._usual, name)

    def write(self, field: str, value: Any) -> None:
        self._given[field] = value
        self._usual = self._type(**self._given)


def _values(record: RecordShape, declared: Any, usual: Any) -> dict[str, Value]:
    written: dict[str, Value] = {}
    for key in record.keys:
        if not key.field:
            if (section := _section(key, declared, usual)) is not None:
                written[key.name] = section
            continue
        value, default = getattr(declared, key.field), getattr(usual, key.field)
        if value == default and (not key.required or key.unless):
            continue
        if isinstance(usual, _Growing):
            usual.write(key.field, value)
        written[key.name] = _value(key, value, default, declared)
    return written


def _section(key: Key, declared: Any, usual: Any) -> Value | None:
    """Returns a section: off where its first field is None, None if no key differs."""
    if isinstance(key.shape, shapes.OffOrShape):
        if getattr(declared, key.shape.shape.keys[0].field) is None:
            return UnquotedText("off")
        return _values(key.shape.shape, declared, usual) or None
    assert isinstance(key.shape, RecordShape)
    return _values(key.shape, declared, usual) or None


def _value(key: Key, value: Any, usual: Any, declared: Any) -> Value:
    if key.converter:
        return CONVERTERS[key.converter](value)
    match key.shape:
        case shapes.SettingsShape() as shape:
            return _settings(shape, value, usual, declared)
        case RecordShape():
            return values_of(value, None if key.required else usual)
        case shapes.OffOrShape():
            return UnquotedText("off") if value is None else values_of(value, usual)
        case shapes.ListShape(item=item) if key.each:
            return _plain(item, value)
        case shape:
            return _plain(shape, value)


def _plain(shape: Shape, value: Any) -> Value:
    match shape:
        case shapes.QuantityShape(kind=Quantity.DURATION):
            return duration(value)
        case shapes.QuantityShape(kind=Quantity.RATE):
            return UnquotedText(rate(value).replace(" ", ""))
        case ValueShape.NUMBER:
            return UnquotedText(number_text(value))
        case shapes.QuantityShape(kind=Quantity.TIMESTAMP):
            when = datetime.fromtimestamp(value / 1000, UTC)
            return UnquotedText(when.isoformat(timespec="milliseconds").replace("+00:00", "Z"))
        case shapes.ChoiceShape():
            return UnquotedText(str(value)) if "off" in shape.words else str(value)
        case shapes.ListShape():
            if shape.least and isinstance(shape.item, shapes.TextShape) and len(value) == 1:
                return _plain(shape.item, value[0])  # a single name stands without brackets
            return [_plain(shape.item, member) for member in value]
        case shapes.MapShape():
            return {str(key): _plain(shape.value, member) for key, member in sorted(value.items())}
        case RecordShape():
            return values_of(value)
        case _:
            plain: Value = value
            return plain


def _settings(
    shape: shapes.SettingsShape, settings: Mapping[str, Setting], usual: Mapping[str, Setting], declared: Any
) -> Value:
    """Returns the settings that differ. Literal secrets never come out."""
    if shape.client or shape.store:
        return {
            key: _client_setting(getattr(declared, "name", "registry"), key, value)
            for key, value in settings.items()
        }
    return {
        key: setting(str(value) if shape.public else in_units(key, str(value)))
        for key, value in sorted(settings.items())
        if usual.get(key) != value
    }


def _client_setting(cluster: str, key: str, value: Setting) -> Value:
    """Returns a client setting; a literal secret becomes a reference to an environment variable."""
    match value:
        case dict():
            return {str(kind): name for kind, name in value.items()}
        case str() if looks_secret(key):
            return {"env": secret_variable(cluster, key)}
        case str():
            return setting(value)


def spark_size(size: int) -> str:
    """Returns a size in bytes as Spark writes it: 128m."""
    unit = next(shift for shift in (40, 30, 20, 10) if size % (1 << shift) == 0)
    return f"{size >> unit}{'kmgt'[unit // 10 - 1]}"


def _rename(rename: Rename) -> Value:
    match rename:
        case Template(text):
            return text
        case Match(match=regex, to=to):
            return {"match": regex, "to": to}
        case Table(names):
            return names
        case _:
            assert_never(rename)


def _start(start: Start) -> Value:
    match start:
        case Earliest():
            return "earliest"
        case Latest():
            return "latest"
        case _:
            return values_of(start)


CONVERTERS: Mapping[str, Callable[[Any], Value]] = {
    "bootstrap": lambda addresses: addresses,
    "rename": _rename,
    "requirements": lambda require: {
        requirement.subject: f"{requirement.operator}{requirement.value}" for requirement in require
    },
    "size": spark_size,
    "rules": lambda rules: [values_of(rule) for rule in rules],
    "samples": lambda samples: {sample.topics: sample.file for sample in samples},
    "schema": lambda text: text,  # of a file, its content
    "start": _start,
}
