"""Adds a pattern to a flow's `promoted` in the text of a topology. Every other character stays."""

import json
from typing import Any

import yaml

from planner.config.edit.flow_key import (
    FlowYamlNode,
    find_flow,
    insert_lines,
    is_alias,
    pair_of,
    place,
    quoted,
    span_of,
)

PROMOTED = "promoted"


def with_promoted(text: str, flow: str, pattern: str) -> str | None:
    """Returns the text with one more pattern; None if the flow is not in this text."""
    found = find_flow(text, flow)
    if found is None:
        return None
    word = json.dumps(pattern) if found.quotes == '"' else _plain(pattern)
    pair = pair_of(found.flow, PROMOTED)
    if pair is None:
        return _new(text, found, f"[{word}]")
    key, patterns = pair
    items = patterns.value if isinstance(patterns, yaml.SequenceNode) else [patterns]
    if is_alias(key, patterns) or any(is_alias(key, one) for one in items):
        # The anchor may belong to another flow too: the list is written out here.
        start, end = span_of(text, key, patterns)
        words = [json.dumps(one.value) if found.quotes == '"' else _plain(one.value) for one in items]
        return f"{text[:start]}[{', '.join([*words, word])}]{text[end:]}"
    match patterns:
        case yaml.SequenceNode(value=[*_, last], flow_style=False):
            line = f"{' ' * patterns.start_mark.column}- {word}"
            return insert_lines(text, _end(text, last), line)
        case yaml.SequenceNode(value=[*_, last]):
            return _inserted(text, _end(text, last), f", {word}")
        case yaml.SequenceNode():
            return _inserted(text, place(text, patterns.start_mark) + 1, word)
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
    """Returns the end of a value, without the blanks behind it."""
    start, end = place(text, node.start_mark), place(text, node.end_mark)
    return start + len(text[start:end].rstrip())


def _inserted(text: str, at: int, words: str) -> str:
    return f"{text[:at]}{words}{text[at:]}"
