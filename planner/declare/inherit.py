"""What is not said: inherited from the topology's defaults first, then from the language's."""

from functools import cache
from typing import Any

from planner.declare import shapes
from planner.declare.fields import Fields
from planner.declare.nodes import Node, Scalar, Sequence
from planner.declare.read import Reader
from planner.declare.shapes import Key, Plain


def inherited(own: Fields, default: Fields | None) -> Fields:
    """The record with what the defaults add: maps key by key, settings one by one, all else as a whole."""
    if default is None:
        return own
    result = Fields(own.record, own.source, dict(own.values), dict(own.places))
    for name, value in default.values.items():
        if name not in own.places:
            result.values[name] = value
            result.places[name] = default.places[name]
            continue
        mine = own.values.get(name)
        if isinstance(mine, Fields) and isinstance(value, Fields) and mine.record is value.record:
            result.values[name] = inherited(mine, value)
        elif isinstance(own.record.by_name[name].shape, shapes.Settings) and isinstance(mine, dict):
            result.values[name] = {**value, **mine}
    return result


def completed(fields: Fields) -> Fields:
    """The record with the language's own defaults for what is still not said."""
    result = Fields(fields.record, fields.source, dict(fields.values), fields.places)
    for key in fields.record.keys:
        if key.name in result.values:
            value = result.values[key.name]
            if isinstance(value, Fields):
                result.values[key.name] = completed(value)
        elif key.name not in fields.places:
            _fill(result, key)
    return result


def _fill(fields: Fields, key: Key) -> None:
    shape = key.shape.shape if isinstance(key.shape, shapes.OrOff) else key.shape
    if key.default is not shapes.ABSENT:
        fields.values[key.name] = default_value(key)
    elif isinstance(shape, shapes.Record) and not key.required:
        fields.values[key.name] = completed(Fields(shape, fields.source))


@cache
def default_value(key: Key) -> Any:
    """The default as the loader itself would read it."""
    assert not isinstance(key.default, shapes.Absent)
    reader = Reader()
    value = reader.read(key.shape, plain_node(key.default), key.name)
    assert not reader.diagnostics, reader.diagnostics
    return value


def plain_node(value: Plain) -> Node:
    if isinstance(value, tuple):
        return Sequence(tuple(plain_node(item) for item in value), "", 0, 0)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return Scalar(text, True, "", 0, 0)
