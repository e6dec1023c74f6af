"""Turns the dataclasses of the topology into values of YAML: only the keys that differ from the defaults.

The keys, their order and the form of their values follow from `planner.model.keys.record_of`. Only the values
of the keys that name a converter are written by hand.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from typing import Any, assert_never

from planner.diff.values import in_units
from planner.model import shapes
from planner.model.keys import record_of
from planner.model.shapes import RecordKeyShape, RecordShape, Shape
from planner.model.topology import (
    Requirement,
    SecretRef,
    Setting,
    Start,
    StartAt,
    looks_secret,
    secret_variable,
)
from planner.render.yaml.text import UnquotedText, Value, setting
from runtime.contract.spec.rename import Match, Rename, Table, Template


def values_of(declared: Any, usual: Any = None) -> dict[str, Value]:
    """Returns the keys of an object that differ from `usual`, by name, in the order of the language.

    Without `usual`, a key is left out if the keys written before it already give its value: a default may
    follow from another key.
    """
    kind: Any = type(declared)
    return _values(record_of(kind), declared, usual if usual is not None else _Growing(declared))


def duration(milliseconds: int) -> UnquotedText:
    text = in_units(".ms", str(milliseconds))
    return UnquotedText(text if not text.isdecimal() else f"{text}ms")


class _Growing:
    """An object with the fields that were written so far, and the defaults of all others."""

    def __init__(self, declared: Any) -> None:
        self._type: Any = type(declared)
        record = record_of(declared.__class__)
        keys = {key.field: key for key in record.keys}
        self._given = {
            one.name: getattr(declared, one.name)
            for one in fields(self._type)
            if one.default is MISSING and one.default_factory is MISSING
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
    found: dict[str, Value] = {}
    for key in record.keys:
        if not key.field:
            if (section := _section(key, declared, usual)) is not None:
                found[key.name] = section
            continue
        value, default = _at(declared, key.field), _at(usual, key.field)
        if value == default and not key.required:
            continue
        if isinstance(usual, _Growing) and "." not in key.field:
            usual.write(key.field, value)
        found[key.name] = _value(key, value, default, declared)
    return found


def _at(declared: Any, path: str) -> Any:
    for name in path.split("."):
        declared = getattr(declared, name)
    return declared


def _section(key: RecordKeyShape, declared: Any, usual: Any) -> Value | None:
    """Returns a section: off where its first field is None, None if no key differs."""
    if isinstance(key.shape, shapes.OffOrShape):
        if getattr(declared, key.shape.shape.keys[0].field) is None:
            return UnquotedText("off")
        return _values(key.shape.shape, declared, usual) or None
    assert isinstance(key.shape, RecordShape)
    return _values(key.shape, declared, usual) or None


def _value(key: RecordKeyShape, value: Any, usual: Any, declared: Any) -> Value:
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
        case shapes.DurationShape():
            return duration(value)
        case shapes.RateShape():
            return _rate(value)
        case shapes.TimestampShape():
            when = datetime.fromtimestamp(value / 1000, UTC)
            return UnquotedText(when.isoformat(timespec="milliseconds").replace("+00:00", "Z"))
        case shapes.ChoiceShape():
            return UnquotedText(str(value)) if "off" in shape.words else str(value)
        case shapes.ListShape():
            if shape.least and isinstance(shape.item, shapes.TextShape) and len(value) == 1:
                return _plain(shape.item, value[0])  # a single name stands without brackets
            return [_plain(shape.item, one) for one in value]
        case shapes.MapShape():
            return {str(key): _plain(shape.value, one) for key, one in sorted(value.items())}
        case _:
            plain: Value = value
            return plain


def _rate(bytes_per_second: int) -> UnquotedText:
    text = in_units(".bytes", str(bytes_per_second))
    return UnquotedText(f"{text}B/s" if text.isdecimal() else f"{text}/s")


def _settings(
    shape: shapes.SettingsShape, settings: Mapping[str, Setting], usual: Mapping[str, Setting], declared: Any
) -> Value:
    """Returns the settings that differ. Literal secrets never come out."""
    if shape.client:
        return {key: _client_setting(declared.name, key, value) for key, value in settings.items()}
    return {
        key: setting(str(value) if shape.public else in_units(key, str(value)))
        for key, value in sorted(settings.items())
        if usual.get(key) != value
    }


def _client_setting(cluster: str, key: str, value: Setting) -> Value:
    """Returns a client setting; a literal secret becomes a reference to an environment variable."""
    match value:
        case SecretRef(kind=kind, name=name):
            return {kind: name}
        case str() if looks_secret(key):
            return {"env": secret_variable(cluster, key)}
        case str():
            return setting(value)


def _rename(rename: Rename) -> Value:
    match rename:
        case Template(text):
            return text
        case Match(match=regex, to=to):
            return {"match": regex, "to": to}
        case Table(names):
            return dict(names)
        case _:
            assert_never(rename)


def _start(start: Start) -> Value:
    return start.at if isinstance(start, StartAt) else values_of(start)


def _requirements(require: tuple[Requirement, ...]) -> Value:
    return {one.subject: f"{one.operator}{one.value}" for one in require}


def _bootstrap(addresses: str) -> Value:
    return addresses


CONVERTERS: Mapping[str, Callable[[Any], Value]] = {
    "bootstrap": _bootstrap,
    "rename": _rename,
    "requirements": _requirements,
    "start": _start,
}
