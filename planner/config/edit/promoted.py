"""One more pattern under a flow's `promoted` in the text of a topology; every other character stays."""

import json
from typing import Any

import yaml

from planner.config.edit.flow_key import FlowYamlNode, insert_lines, place, quoted, value_of, written

PROMOTED = "promoted"


def with_promoted(text: str, flow: str, pattern: str) -> str | None:
    """None where the text does not write the flow out."""
    found = written(text, flow)
    if found is None:
        return None
    word = json.dumps(pattern) if found.quotes == '"' else _plain(pattern)
    match value_of(found.flow, PROMOTED):
        case None:
            return _new(text, found, f"[{word}]")
        case yaml.SequenceNode(value=[*_, last], flow_style=False) as items:
            line = f"{' ' * items.start_mark.column}- {word}"
            return insert_lines(text, _end(text, last), line)
        case yaml.SequenceNode(value=[*_, last]):
            return _inserted(text, _end(text, last), f", {word}")
        case yaml.SequenceNode() as empty:
            return _inserted(text, place(text, empty.start_mark) + 1, word)
        case one:
            start, end = place(text, one.start_mark), _end(text, one)
            return f"{text[:start]}[{text[start:end]}, {word}]{text[end:]}"


def _plain(pattern: str) -> str:
    doubled = pattern.replace("'", "''")
    return f"'{doubled}'"


def _new(text: str, found: FlowYamlNode, words: str) -> str:
    behind = place(text, found.name.end_mark)
    line = f"{quoted(found.quotes, PROMOTED)}: {words}"
    if found.flow.flow_style:
        return _inserted(text, behind, f", {line}")
    return insert_lines(text, behind, f"{' ' * found.flow.start_mark.column}{line}")


def _end(text: str, node: Any) -> int:
    """Of the value itself: what stands behind it on its line is none of it."""
    start, end = place(text, node.start_mark), place(text, node.end_mark)
    return start + len(text[start:end].rstrip())


def _inserted(text: str, at: int, words: str) -> str:
    return f"{text[:at]}{words}{text[at:]}"
