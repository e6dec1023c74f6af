"""A flow's way home in the text of a topology: written behind the flow, in its style; all else stays."""

import json
import re
from collections.abc import Sequence
from typing import Any

import yaml

from planner.config.edit.flow_key import FlowYamlNode, insert_lines, place, quoted, value_of, written

# What the way home has from its original. Its selection follows from the original's; where it starts, its
# state and its job are its own.
KEPT = (
    "provenance",
    "configs",
    "groups",
    "acls",
    "protect",
    "rpo",
    "rate_limit",
    "follow",
    "heartbeats",
    "checkpoints",
)
_SPECIAL = re.compile(r"[,\[\]{}]|^[&*!|>%@`]")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")


def with_way_back(
    text: str, flow: str, name: str, exclude: Sequence[str] = (), *, job: str = "", groups: bool = True
) -> str | None:
    """None where the text does not write the flow out, or so that nothing can be put beside it. Without
    `groups` it moves none, and without `job` it has its destination's.
    """
    found = written(text, flow)
    if found is None:
        return None
    fields = _fields(found, name, exclude)
    if job:
        fields.append(("job", _word(job, found.quotes == '"')))
    if not groups:
        fields = [*(one for one in fields if one[0] != "groups"), ("groups", _off(found))]
    if found.flow.flow_style:
        marked = [f"{quoted(found.quotes, key)}: {value}" for key, value in fields]
        item = "{" + ", ".join(marked) + "}"
        return _beside(text, found, item) if found.flows.flow_style else _below(text, found, [item])
    return _below(text, found, [f"{quoted(found.quotes, key)}: {value}" for key, value in fields])


def _fields(found: FlowYamlNode, name: str, exclude: Sequence[str]) -> list[tuple[str, str]]:
    as_json = found.quotes == '"'
    source, destination = value_of(found.flow, "from"), value_of(found.flow, "to")
    topics = {"include": [".*"], **({"exclude": list(exclude)} if exclude else {})}
    made = [
        ("name", _word(name, as_json)),
        ("reverse_of", _word(found.name.value, as_json)),
        ("from", _word(destination.value, as_json)),
        ("to", _word(source.value, as_json)),
        ("topics", _dumped(topics, as_json)),
    ]
    kept = [(key, value_of(found.flow, key)) for key in KEPT]
    return made + [(key, _node(node, as_json)) for key, node in kept if node is not None]


def _below(text: str, found: FlowYamlNode, lines: Sequence[str]) -> str | None:
    """A list of lines: behind the last line of the flow."""
    column = found.flow.start_mark.column
    start = place(text, found.flow.start_mark)
    lead = text[start - column : start]
    if not re.fullmatch(r"\s*-\s+", lead):
        return None
    first, *rest = lines
    block = "\n".join([f"{lead}{first}", *(f"{' ' * column}{line}" for line in rest)])
    end = _end(text, found.flow)
    apart = re.match(r"[^\n]*\n[ \t]*\n", text[end:])  # as far from its neighbours as they are
    return insert_lines(text, end, f"\n{block}" if apart else block)


def _beside(text: str, found: FlowYamlNode, item: str) -> str:
    """A list in brackets: a line of its own where the flow has one."""
    column = found.flow.start_mark.column
    start, end = place(text, found.flow.start_mark), place(text, found.flow.end_mark)
    lead = text[start - column : start]
    between = f",\n{lead}" if not lead.strip() and "\n" in text else ", "
    return f"{text[:end]}{between}{item}{text[end:]}"


def _end(text: str, node: Any) -> int:
    """Behind the last sign that belongs to the node: a block's own mark is where the next thing begins."""
    last = node
    while not isinstance(last, yaml.ScalarNode) and not last.flow_style and last.value:
        last = last.value[-1][1] if isinstance(last, yaml.MappingNode) else last.value[-1]
    end = place(text, last.end_mark)
    return end - 1 if end and text[end - 1] == "\n" else end


def _node(node: Any, as_json: bool) -> str:
    """As it stands there, in one line."""
    match node:
        case yaml.MappingNode():
            pairs = (f"{_node(key, as_json)}: {_node(value, as_json)}" for key, value in node.value)
            return "{" + ", ".join(pairs) + "}"
        case yaml.SequenceNode():
            return "[" + ", ".join(_node(one, as_json) for one in node.value) + "]"
        case _:
            return _scalar(node, as_json)


def _scalar(node: Any, as_json: bool) -> str:
    value: str = node.value
    if not node.style and not _SPECIAL.search(value):
        return value
    return json.dumps(value, ensure_ascii=False) if as_json else _single(value)


def _single(value: str) -> str:
    if "\n" in value:
        return json.dumps(value, ensure_ascii=False)
    return "'" + value.replace("'", "''") + "'"


def _word(value: str, as_json: bool) -> str:
    if as_json:
        return json.dumps(value, ensure_ascii=False)
    plain = _PLAIN.fullmatch(value) and yaml.safe_load(value) == value
    return value if plain else _single(value)


def _off(found: FlowYamlNode) -> str:
    return "{" + quoted(found.quotes, "sync") + ": false}"


def _dumped(value: dict[str, list[str]], as_json: bool) -> str:
    if as_json:
        return json.dumps(value, ensure_ascii=False)
    lists = (f"{key}: [{', '.join(map(_single, names))}]" for key, names in value.items())
    return "{" + ", ".join(lists) + "}"
