"""Makes the JSON Schema of the language, draft 2020-12. Editors complete and check topologies by it."""

from typing import Any, assert_never

from planner.config.language.scalars import BYTES, MILLISECONDS
from planner.config.variables import python_value
from planner.config.yaml_tree.parse import documents
from planner.model import shapes
from planner.model.keys import record_of
from planner.model.shapes import Plain, RecordKeyShape, RecordShape, Shape
from planner.model.topology import Topology
from runtime.contract.client.keys import ALLOWED, CREDENTIALS

Schema = dict[str, Any]
DRAFT = "https://json-schema.org/draft/2020-12/schema"
QUANTITY = r"^\d+(\.\d+)? ?({})$"
VALUE: Schema = {"type": ["string", "number", "boolean"]}
_DEFINITION_OF: dict[type[Shape], str] = {
    shapes.TopicNameShape: "topic-name",
    shapes.DurationShape: "duration",
    shapes.RateShape: "rate",
    shapes.TimestampShape: "moment",
    shapes.RegexShape: "regex",
}


def _reference(kind: str) -> Schema:
    named = {kind: {"type": "string"}}
    return {"type": "object", "properties": named, "required": [kind], "additionalProperties": False}


# Shared definitions; each has a name, so that an editor shows it once.
DEFINITIONS: dict[str, Schema] = {
    "expression": {"type": "string", "pattern": r"\{\{.*\}\}", "description": "A Jinja2 expression, quoted."},
    "off": {"enum": ["off", False], "description": "Off."},
    "duration": {
        "type": "string",
        "pattern": QUANTITY.format("|".join(MILLISECONDS)),
        "description": "A duration: ms, s, m, h, d or w.",
    },
    "rate": {
        "type": "string",
        "pattern": QUANTITY.format("|".join(BYTES)).removesuffix("$") + "/s$",
        "description": "A rate: a size per second.",
    },
    "moment": {
        "anyOf": [
            {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}[T ].*(Z|[+-]\d{2}:?\d{2})$"},
            {"type": "integer"},
        ],
        "description": "A time with its zone, or milliseconds since 1970.",
    },
    "regex": {"type": "string", "description": "A regular expression (Python's) for whole names."},
    "topic-name": {
        "type": "string",
        "pattern": r"^(?!__repl\.)(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$",
        "description": "A topic's name.",
    },
    "setting": {"anyOf": [VALUE, {"type": "array", "items": VALUE}]},
    "secret": {
        "description": "A secret, read only where a connection is opened.",
        "anyOf": [_reference("env"), _reference("file")],
    },
}


def json_schema() -> Schema:
    """Returns the schema of each file. Keys that a folder must have in one of its files are not required."""
    definitions: dict[str, Schema] = dict(DEFINITIONS)
    root = _record(record_of(Topology), definitions)
    required = root.pop("required")
    return {
        "$schema": DRAFT,
        "$id": "urn:repl:topology:v1",
        "title": "repl topology",
        "$comment": f"The files of a topology must together have {', '.join(required)}.",
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def _record(record: RecordShape, definitions: dict[str, Schema]) -> Schema:
    schema: Schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {key.name: _key(key, definitions) for key in record.keys},
    }
    if record.doc:
        schema["description"] = record.doc
    if required := [key.name for key in record.keys if key.required]:
        schema["required"] = required
    return schema


def _key(key: RecordKeyShape, definitions: dict[str, Schema]) -> Schema:
    schema: Schema = {"description": key.doc}
    if key.default is not shapes.ABSENT:
        schema["default"] = _plain(key.default)
    if key.example:
        schema["examples"] = [example_value(key.example)]
    return {**schema, **_computable(key.shape, definitions)}


def _plain(value: Plain) -> Any:
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def example_value(text: str) -> Any:
    nodes, _ = documents(text, "example")
    return python_value(nodes[0])


def _computable(shape: Shape, definitions: dict[str, Schema]) -> Schema:
    """Returns the schema of a value, or of an expression in its place."""
    schema = _of(shape, definitions)
    if schema == {"type": "string"} or isinstance(shape, shapes.AnyShape | shapes.RecordShape):
        return schema
    return {"anyOf": [schema, {"$ref": "#/$defs/expression"}]}


def _named(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _of(shape: Shape, definitions: dict[str, Schema]) -> Schema:
    """Returns the schema of a shape; the definitions of records are added to `definitions`."""
    match shape:
        case shapes.ListShape():
            return _list(shape, definitions)
        case shapes.MapShape():
            return _map(shape, definitions)
        case shapes.RecordShape():
            if shape.name not in definitions:
                definitions[shape.name] = _record(shape, definitions)
            return _named(shape.name)
        case shapes.AlternativesShape():
            return {"anyOf": [_of(one, definitions) for one in shape.alternatives]}
        case shapes.OffOrShape():
            return {"anyOf": [_named("off"), _of(shape.shape, definitions)]}
        case _:
            return _scalar(shape)


def _scalar(shape: shapes.ScalarShape | shapes.AnyShape | shapes.SettingsShape) -> Schema:
    """Returns the schema of a shape that holds no other shapes."""
    match shape:
        case shapes.TextShape():
            return {"type": "string"} | ({"pattern": f"^(?:{shape.pattern})$"} if shape.pattern else {})
        case shapes.AnyShape():
            return {}
        case shapes.ChoiceShape():
            return {"enum": _words(shape)}
        case shapes.BooleanShape():
            return {"type": "boolean"}
        case shapes.IntegerShape():
            return {"type": "integer", "minimum": shape.least, "maximum": shape.most}
        case shapes.SettingsShape():
            return _settings(shape)
        case (
            shapes.TopicNameShape()
            | shapes.DurationShape()
            | shapes.RateShape()
            | shapes.TimestampShape()
            | shapes.RegexShape()
        ):
            return _named(_DEFINITION_OF[type(shape)])
        case _:
            assert_never(shape)


def _words(shape: shapes.ChoiceShape) -> list[Any]:
    words: list[Any] = list(shape.words)
    if shape.any_case:
        words += [word.lower() for word in shape.words]
    return [*words, False] if "off" in words else words


def _settings(shape: shapes.SettingsShape) -> Schema:
    if shape.client:
        known = {
            name: {"anyOf": [_named("setting"), _named("secret")]}
            if name in CREDENTIALS
            else _named("setting")
            for name in sorted(ALLOWED)
        }
        return {"type": "object", "properties": known, "additionalProperties": False}
    names = f"^{shape.prefix.replace('.', chr(92) + '.')}\\S+$"
    return {"type": "object", "propertyNames": {"pattern": names}, "additionalProperties": _named("setting")}


def _list(shape: shapes.ListShape, definitions: dict[str, Schema]) -> Schema:
    item = _computable(shape.item, definitions)
    listed: Schema = {"type": "array", "items": item}
    if shape.least:
        listed["minItems"] = shape.least
    return {"anyOf": [listed, item]} if shape.lone else listed


def _map(shape: shapes.MapShape, definitions: dict[str, Schema]) -> Schema:
    table: Schema = {"type": "object", "additionalProperties": _computable(shape.value, definitions)}
    if isinstance(shape.key, shapes.IntegerShape):
        table["propertyNames"] = {"pattern": r"^\d+$"}
    elif isinstance(shape.key, shapes.TopicNameShape):
        table["propertyNames"] = _named("topic-name")
    elif shape.key.pattern:
        table["propertyNames"] = {"pattern": f"^(?:{shape.key.pattern})$"}
    if shape.least:
        table["minProperties"] = shape.least
    return table
