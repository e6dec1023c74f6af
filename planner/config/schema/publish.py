"""Publishes the language: its JSON Schema, draft 2020-12, and the pages docs/topology*.md.

Editors complete and check topologies by the schema.
"""

import re
from importlib.resources import files
from typing import Any

from planner.config.hints import describe
from planner.config.variables import python_value
from planner.config.yaml_tree import documents
from planner.model.topology import Topology
from runtime.contract.client import stores
from runtime.contract.client.keys import ALLOWED, CREDENTIALS
from runtime.contract.spec import shapes
from runtime.contract.spec.shapes import Key, Plain, Quantity, RecordShape, Shape, ValueShape, record_of
from runtime.contract.spec.units import BYTES, MILLISECONDS

Schema = dict[str, Any]
DRAFT = "https://json-schema.org/draft/2020-12/schema"
QUANTITY = r"^\d+(\.\d+)? ?({})$"
VALUE: Schema = {"type": ["string", "number", "boolean"]}
_DEFINITION_OF: dict[Shape, str] = {
    ValueShape.TOPIC_NAME: "topic-name",
    ValueShape.REGEX: "regex",
}
_DEFINITION_OF_QUANTITY = {
    Quantity.DURATION: "duration",
    Quantity.RATE: "rate",
    Quantity.TIMESTAMP: "moment",
}


def _reference(kind: str) -> Schema:
    named = {kind: {"type": "string"}}
    return {"type": "object", "properties": named, "required": [kind], "additionalProperties": False}


# Shared definitions. They have no description: an editor would show it in place of the key's.
DEFINITIONS: dict[str, Schema] = {
    "expression": {"type": "string", "pattern": r"\{\{.*\}\}"},
    "off": {"enum": ["off", False]},
    "duration": {
        "type": "string",
        "pattern": QUANTITY.format("|".join(MILLISECONDS)),
    },
    "rate": {
        "type": "string",
        "pattern": QUANTITY.format("|".join(BYTES)).removesuffix("$") + "/s$",
    },
    "moment": {
        "anyOf": [
            {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}[T ].*(Z|[+-]\d{2}:?\d{2})$"},
            {"type": "integer"},
        ],
    },
    "regex": {"type": "string"},
    "topic-name": {
        "type": "string",
        "pattern": r"^(?!__repl\.)(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$",
    },
    "setting": {"anyOf": [VALUE, {"type": "array", "items": VALUE}]},
    "secret": {
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
        schema["description"] = without_links(record.doc)
    if required := [key.name for key in record.keys if key.required and not key.unless]:
        schema["required"] = required
    if either := [key for key in record.keys if key.unless]:
        schema["anyOf"] = [{"required": [name]} for key in either for name in (key.name, key.unless)]
    return schema


def _key(key: Key, definitions: dict[str, Schema]) -> Schema:
    schema: Schema = {"description": f"{without_links(key.doc)} Takes {describe(key.shape)}."}
    if key.default is not shapes.ABSENT:
        schema["default"] = _plain(key.default)
    if key.example:
        schema["examples"] = [example_value(key.example)]
    return {**schema, **_computable(key.shape, definitions)}


def without_links(doc: str) -> str:
    """Returns a sentence of docs/topology.md for a place where its links lead nowhere."""
    return re.sub(r"\[([^\]]+)\]\(([^)#]+)[^)]*\)", r"docs/\2", doc)


def _plain(value: Plain) -> Any:
    return [_plain(member) for member in value] if isinstance(value, tuple) else value


def example_value(text: str) -> Any:
    nodes, _ = documents(text, "example")
    return python_value(nodes[0])


def _computable(shape: Shape, definitions: dict[str, Schema]) -> Schema:
    """Returns the schema of a value, or of an expression in its place."""
    schema = _of(shape, definitions)
    if schema == {"type": "string"} or shape is ValueShape.ANY or isinstance(shape, RecordShape):
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
            return {"anyOf": [_of(alternative, definitions) for alternative in shape.alternatives]}
        case shapes.OffOrShape():
            return {"anyOf": [_named("off"), _of(shape.shape, definitions)]}
        case _:
            return _scalar(shape)


def _scalar(shape: Shape) -> Schema:
    """Returns the schema of a shape that holds no other shapes."""
    match shape:
        case shapes.TextShape():
            return {"type": "string"} | ({"pattern": f"^(?:{shape.pattern})$"} if shape.pattern else {})
        case ValueShape.ANY:
            return {}
        case shapes.ChoiceShape():
            return {"enum": _words(shape)}
        case ValueShape.BOOLEAN:
            return {"type": "boolean"}
        case shapes.IntegerShape():
            return {"type": "integer", "minimum": shape.least, "maximum": shape.most}
        case shapes.QuantityShape():
            return _named(_DEFINITION_OF_QUANTITY[shape.kind])
        case ValueShape.NUMBER:
            return {"type": "number", "exclusiveMinimum": 0}
        case shapes.SettingsShape():
            return _settings(shape)
        case _:
            return _named(_DEFINITION_OF[shape])


def _words(shape: shapes.ChoiceShape) -> list[Any]:
    words: list[Any] = list(shape.words)
    if shape.any_case:
        words += [word.lower() for word in shape.words]
    return [*words, False] if "off" in words else words


def setting_names(shape: Shape) -> list[str]:
    """Returns the names of the settings that a shape allows; nothing where every name is."""
    if not isinstance(shape, shapes.SettingsShape):
        return []
    return sorted(stores.KEYS if shape.store else ALLOWED if shape.client else ())


def _settings(shape: shapes.SettingsShape) -> Schema:
    if names := setting_names(shape):
        credentials = stores.CREDENTIALS if shape.store else CREDENTIALS
        properties = {
            name: {"anyOf": [_named("setting"), _named("secret")]}
            if name in credentials
            else _named("setting")
            for name in names
        }
        return {"type": "object", "properties": properties, "additionalProperties": False}
    pattern = f"^{shape.prefix.replace('.', chr(92) + '.')}\\S+$"
    return {
        "type": "object",
        "propertyNames": {"pattern": pattern},
        "additionalProperties": _named("setting"),
    }


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
    elif shape.key in _DEFINITION_OF:
        table["propertyNames"] = _named(_DEFINITION_OF[shape.key])
    elif isinstance(shape.key, shapes.TextShape) and shape.key.pattern:
        table["propertyNames"] = {"pattern": f"^(?:{shape.key.pattern})$"}
    if shape.least:
        table["minProperties"] = shape.least
    return table


HEAD = ("| key | takes | default | |", "| --- | --- | --- | --- |")
INDEX = "topology.md"
_REST = "topology-clusters.md"
# Each page of keys: its title, and the records on it by the beginning of their names.
_PAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    _REST: ("Keys of clusters, topics, rules and policies", ()),
    "topology-flows.md": (
        "Keys of flows",
        ("flow", "follow", "rename", "start", "heartbeats", "checkpoints", "origin", "lines", "transform"),
    ),
    "topology-jobs.md": (
        "Keys of jobs, endpoints and drills",
        ("job", "metrics", "endpoint", "compact", "drill"),
    ),
}


def reference() -> dict[str, str]:
    """Returns the pages about the language by their file names: the index, and the pages of keys."""
    here = files("planner.config.schema")
    introduction = here.joinpath("introduction.md").read_text(encoding="utf-8")
    example = here.joinpath("example.yaml").read_text(encoding="utf-8")
    records = _records(record_of(Topology))
    index = [introduction.replace("{{ example }}", example.rstrip()).rstrip(), ""]
    pages = {}
    for name, (title, _) in _PAGES.items():
        on_it = [record for record in records if _page_of(record) == name]
        index.append(f"- [{title}]({name}): {', '.join(filter(None, map(_linked, on_it)))}")
        written = f"These keys are a part of [the language of a topology]({INDEX}), and generated like it."
        pages[name] = "\n".join([f"# {title}", "", written, "", *map(_section, on_it)]).rstrip() + "\n"
    return {INDEX: "\n".join([*index, ""]), **pages}


def _page_of(record: RecordShape) -> str:
    return next((name for name, (_, begins) in _PAGES.items() if record.name.startswith(begins)), _REST)


def _records(record: RecordShape) -> list[RecordShape]:
    """Returns the record and every record inside it, each once, in the order of the page."""
    records: list[RecordShape] = []
    waiting: list[Shape] = [record]
    while waiting:
        shape = waiting.pop(0)
        if isinstance(shape, RecordShape):
            if shape not in records:
                records.append(shape)
                waiting[0:0] = [key.shape for key in shape.keys]
        else:
            waiting[0:0] = inside(shape)
    return records


def inside(shape: Shape) -> list[Shape]:
    """Returns the shapes that a shape holds, a record's keys left out."""
    match shape:
        case shapes.ListShape():
            return [shape.item]
        case shapes.MapShape():
            return [shape.value]
        case shapes.OffOrShape():
            return [shape.shape]
        case shapes.AlternativesShape():
            return list(shape.alternatives)
        case _:
            return []


def _section(record: RecordShape) -> str:
    lines = [f"## `{record.name}`", ""]
    if record.doc:
        lines += [record.doc, ""]
    lines += [*HEAD, *(_row(key) for key in record.keys), ""]
    return "\n".join(lines)


def _row(key: Key) -> str:
    name = f"`{key.name}`" + (" (required)" if key.required else "")
    example = f" Example: `{key.example}`." if key.example else ""
    cells = (name, _takes(key.shape), _default(key), key.doc + example)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _takes(shape: Shape) -> str:
    inner = _linked(shape)
    match shape:
        case shapes.RecordShape():
            return inner or ""
        case shapes.OffOrShape():
            return f"`off`, or {_linked(shape.shape)}"
        case shapes.ListShape(item=shapes.RecordShape() as item):
            return f"a list of {_linked(item)}"
        case shapes.MapShape(value=shapes.RecordShape() as value):
            return f"a map of {shape.named}s, each {_linked(value)}"
        case shapes.ChoiceShape() if len(shape.words) <= len(SHOWN):
            return ", ".join(f"`{word}`" for word in shape.words)
        case _:
            return describe(shape)


SHOWN = range(5)


def _linked(shape: Shape) -> str | None:
    if isinstance(shape, RecordShape):
        return f"[{shape.name}]({_page_of(shape)}#{shape.name.lower()})"
    return None


def _default(key: Key) -> str:
    text = default_text(key)
    if key.default is not shapes.ABSENT:
        return f"`{text}`"
    return text or ("" if key.required else "see there")


def default_text(key: Key) -> str:
    """Returns a key's default as YAML writes it, or words for it; nothing for a required key."""
    if key.default is not shapes.ABSENT:
        return _plain_text(key.default)
    return "" if key.required else key.default_doc


def _plain_text(value: Plain) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(_quoted(member) for member in value)}]"
    return _quoted(value) if isinstance(value, str) and not value.isalnum() else str(value)


def _quoted(value: Plain) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
