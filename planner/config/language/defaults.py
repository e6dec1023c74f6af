"""What is not said: inherited from the topology's defaults first, then from the language's."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from planner.config.language.fields import ParsedRecord
from planner.config.language.reader import ShapeReader
from planner.config.yaml_tree.nodes import Node, Scalar, Sequence
from planner.model import shapes
from planner.model.shapes import Plain, RecordKeyShape


@dataclass(frozen=True, slots=True)
class TopologyParts:
    """A topology that was read, complete with its defaults, before it is checked and built.

    An entry that was wrong stays as a name with the value INVALID, so that references to it are not errors.
    """

    root: ParsedRecord
    clusters: dict[str, Any]
    topics: list[ParsedRecord]
    acls: list[ParsedRecord]
    flows: list[ParsedRecord]
    jobs: dict[str, Any]


def parts_of(root: ParsedRecord) -> TopologyParts:
    """Returns the parts of a topology, complete with their defaults."""
    defaults = root.get("defaults")
    for_topics, for_flows = (defaults.get("topic"), defaults.get("flow")) if defaults else (None, None)
    return TopologyParts(
        root=completed(root),
        clusters={name: _completed(one) for name, one in (root.get("clusters") or {}).items()},
        topics=[completed(inherited(topic, for_topics)) for topic in root.get("topics") or ()],
        acls=[completed(acl) for acl in root.get("acls") or ()],
        flows=[completed(inherited(flow, for_flows)) for flow in root.get("flows") or ()],
        jobs={name: _completed(one) for name, one in (root.get("jobs") or {}).items()},
    )


def _completed(one: Any) -> Any:
    return completed(one) if isinstance(one, ParsedRecord) else one


def inherited(own: ParsedRecord, default: ParsedRecord | None) -> ParsedRecord:
    """Returns the record with the defaults added: maps by key, settings by name, other values as a whole."""
    if default is None:
        return own
    result = ParsedRecord(own.record, own.source, dict(own.values), dict(own.places))
    for name, value in default.values.items():
        if name not in own.places:
            result.values[name] = value
            result.places[name] = default.places[name]
            continue
        mine = own.values.get(name)
        if isinstance(mine, ParsedRecord) and isinstance(value, ParsedRecord) and mine.record is value.record:
            result.values[name] = inherited(mine, value)
        elif isinstance(own.record.by_name[name].shape, shapes.SettingsShape) and isinstance(mine, dict):
            result.values[name] = {**value, **mine}
    return result


def completed(fields: ParsedRecord) -> ParsedRecord:
    """Returns the record with the language's own defaults for the keys that are still missing."""
    result = ParsedRecord(fields.record, fields.source, dict(fields.values), fields.places)
    for key in fields.record.keys:
        if key.name in result.values:
            value = result.values[key.name]
            if isinstance(value, ParsedRecord):
                result.values[key.name] = completed(value)
        elif key.name not in fields.places:
            _fill(result, key)
    return result


def _fill(fields: ParsedRecord, key: RecordKeyShape) -> None:
    shape = key.shape.shape if isinstance(key.shape, shapes.OffOrShape) else key.shape
    if key.default is not shapes.ABSENT:
        fields.values[key.name] = default_value(key)
    elif isinstance(shape, shapes.RecordShape) and not (key.required or key.unset):
        fields.values[key.name] = completed(ParsedRecord(shape, fields.source))


@cache
def default_value(key: RecordKeyShape) -> Any:
    """Returns the default of a key as the reader reads it."""
    assert not isinstance(key.default, shapes.Absent)
    reader = ShapeReader()
    value = reader.read(key.shape, plain_node(key.default), key.name)
    assert not reader.diagnostics, reader.diagnostics
    return value


def plain_node(value: Plain) -> Node:
    if isinstance(value, tuple):
        return Sequence(tuple(plain_node(item) for item in value), "", 0, 0)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return Scalar(text, True, "", 0, 0)
