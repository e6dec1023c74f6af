"""Adds the reverse of a flow to the text of a topology, behind the flow and in its style. All else stays."""

import json
import re
from collections.abc import Sequence
from typing import Any

import yaml

from planner.config.edit.flow_key import (
    FlowYamlNode,
    find_flow,
    insert_lines,
    is_alias,
    merged_value_of,
    place,
    quoted,
    span_of,
)

# Keys that the reverse flow takes from the flow. Its topics follow from the flow's; its start, state and job
# are its own.
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


def with_reverse_flow(
    text: str, flow: str, name: str, exclude: Sequence[str] = (), *, job: str = "", groups: bool = True
) -> str | None:
    """Returns the text with the reverse flow; None if the flow is not there, or nothing fits beside it.

    Without `groups` it syncs no groups. Without `job` it runs in the job of its destination.
    """
    found = find_flow(text, flow)
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
    source, destination = merged_value_of(found.flow, "from"), merged_value_of(found.flow, "to")
    topics = {"include": [".*"], **({"exclude": list(exclude)} if exclude else {})}
    made = [
        ("name", _word(name, as_json)),
        ("reverse_of", _word(found.name.value, as_json)),
        ("from", _word(destination.value, as_json)),
        ("to", _word(source.value, as_json)),
        ("topics", _dumped(topics, as_json)),
    ]
    kept = [(key, merged_value_of(found.flow, key)) for key in KEPT]
    return made + [(key, _node(node, as_json)) for key, node in kept if node is not None]


def _below(text: str, found: FlowYamlNode, lines: Sequence[str]) -> str | None:
    """Returns the text with an entry of a block list below the flow."""
    column = found.flow.start_mark.column
    start = place(text, found.flow.start_mark)
    lead = text[start - column : start]
    if not re.fullmatch(r"\s*-\s+", lead):
        return None
    first, *rest = lines
    block = "\n".join([f"{lead}{first}", *(f"{' ' * column}{line}" for line in rest)])
    end = _end(text, found.flow)
    apart = re.match(r"[^\n]*\n[ \t]*\n", text[end:])  # a blank line as between the other flows
    return insert_lines(text, end, f"\n{block}" if apart else block)


def _beside(text: str, found: FlowYamlNode, item: str) -> str:
    """Returns the text with an entry of a bracketed list behind the flow, on its own line like the flow."""
    column = found.flow.start_mark.column
    start, end = place(text, found.flow.start_mark), place(text, found.flow.end_mark)
    lead = text[start - column : start]
    between = f",\n{lead}" if not lead.strip() and "\n" in text else ", "
    return f"{text[:end]}{between}{item}{text[end:]}"


def _end(text: str, node: Any) -> int:
    """Returns the place behind the node's last character: a block's own end is where the next node begins."""
    last = node
    while not isinstance(last, yaml.ScalarNode) and not last.flow_style and last.value:
        if isinstance(last, yaml.MappingNode):
            key, value = last.value[-1]
            if is_alias(key, value):
                return span_of(text, key, value)[1]
            last = value
        elif last.value[-1].start_mark.index < last.start_mark.index:
            before = place(text, last.start_mark) if len(last.value) == 1 else _end(text, last.value[-2])
            alias = text.index("*", before)
            return alias + len(text[alias:].split(maxsplit=1)[0])
        else:
            last = last.value[-1]
    end = place(text, last.end_mark)
    return end - 1 if end and text[end - 1] == "\n" else end


def _node(node: Any, as_json: bool) -> str:
    """Returns a node as it is written, on one line."""
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
