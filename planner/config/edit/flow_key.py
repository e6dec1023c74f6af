"""Changes the value of one key of one flow in the text of a topology. Every other character stays."""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from planner.config.yaml_tree.parse import Parser

STATE = "state"
_ALIAS = re.compile(r"\s*:\s+(\*[^\s,\[\]{}]+)")


class FlowYamlNode(NamedTuple):
    """A flow in the text: its mapping, its name and the list that it stands in."""

    flow: Any
    name: Any
    flows: Any

    @property
    def quotes(self) -> str | None:
        """Returns the quotes of its keys, if they have any."""
        style: str | None = next(key for key, _ in self.flow.value if key.value == "name").style
        return style if style in ("'", '"') else None


def with_state(text: str, flow: str, state: str) -> str | None:
    """Returns the text in which the flow has the state; None if the flow is not in this text."""
    found = find_flow(text, flow)
    if found is None:
        return None
    now = value_of(found.flow, STATE)
    return _edited(text, found, STATE, quoted(now.style if now is not None else found.quotes, state))


def with_value(text: str, flow: str, key: str, value: Any) -> str | None:
    """Returns the text in which a key of the flow has the value, which is written as JSON."""
    found = find_flow(text, flow)
    return _edited(text, found, key, json.dumps(value)) if found is not None else None


def find_flow(text: str, flow: str) -> FlowYamlNode | None:
    for found in _flows(text):
        if found.name is not None and found.name.value == flow:
            return found
    return None


def value_of(node: Any, key: str) -> Any:
    found = pair_of(node, key)
    return found[1] if found is not None else None


def pair_of(node: Any, key: str) -> tuple[Any, Any] | None:
    """Returns the nodes of a key and its value, as far as the mapping itself writes them."""
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((pair for pair in node.value if pair[0].value == key), None)


def merged_value_of(node: Any, key: str) -> Any:
    """Returns the value of a key, also of one that comes from a mapping behind `<<`."""
    own = value_of(node, key)
    merged = value_of(node, "<<") if own is None else None
    inside = merged.value if isinstance(merged, yaml.SequenceNode) else [merged]
    return next((value for one in inside if (value := value_of(one, key)) is not None), own)


def is_alias(before: Any, node: Any) -> bool:
    """Returns whether the node is written as an alias: its own place is then before that of its key."""
    return bool(node.start_mark.index < before.end_mark.index)


def span_of(text: str, key: Any, value: Any) -> tuple[int, int]:
    """Returns where a value begins and ends in the text; of an alias, where the alias does."""
    if is_alias(key, value):
        found = _ALIAS.match(text, place(text, key.end_mark))
        assert found is not None
        return found.span(1)
    start, end = place(text, value.start_mark), place(text, value.end_mark)
    return start, start + len(text[start:end].rstrip())


def quoted(style: str | None, word: str) -> str:
    return f"{style}{word}{style}" if style in ("'", '"') else word


def place(text: str, mark: Any) -> int:
    """Returns the position of a mark in the text."""
    at = 0
    for _ in range(mark.line):
        at = text.index("\n", at) + 1
    return at + int(mark.column)


def insert_lines(text: str, at: int, lines: str) -> str:
    """Returns the text with lines inserted below the line of a position and its comment."""
    end = text.find("\n", at)
    if end < 0:
        return f"{text}\n{lines}\n"
    return f"{text[: end + 1]}{lines}\n{text[end + 1 :]}"


def _flows(text: str) -> Iterator[FlowYamlNode]:
    for document in yaml.compose_all(text, Loader=Parser):
        flows = value_of(document, "flows")
        if isinstance(flows, yaml.SequenceNode):
            for one in flows.value:
                if isinstance(one, yaml.MappingNode):
                    yield FlowYamlNode(one, value_of(one, "name"), flows)


def _edited(text: str, found: FlowYamlNode, key: str, word: str) -> str:
    now = pair_of(found.flow, key)
    if now is not None:
        start, end = span_of(text, *now)
        return text[:start] + word + text[end:]
    behind = place(text, found.name.end_mark)
    line = f"{quoted(found.quotes, key)}: {word}"
    if found.flow.flow_style:
        return f"{text[:behind]}, {line}{text[behind:]}"
    return insert_lines(text, behind, f"{' ' * found.flow.start_mark.column}{line}")
