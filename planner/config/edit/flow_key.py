"""One key of one flow in the text of a topology: its value changes, and every other character stays."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from planner.config.yaml_tree.parse import Parser

STATE = "state"


class FlowYamlNode(NamedTuple):
    """A flow as it is written out: its mapping, and the list that it stands in."""

    flow: Any
    name: Any
    flows: Any

    @property
    def quotes(self) -> str | None:
        """How its keys are quoted."""
        style: str | None = next(key for key, _ in self.flow.value if key.value == "name").style
        return style if style in ("'", '"') else None


def with_state(text: str, flow: str, state: str) -> str | None:
    """The text in which the flow has the state; None where it does not write the flow out."""
    found = written(text, flow)
    if found is None:
        return None
    now = value_of(found.flow, STATE)
    return _edited(text, found, STATE, quoted(now.style if now is not None else found.quotes, state))


def with_value(text: str, flow: str, key: str, value: Any) -> str | None:
    """The same for any key, whose value is written as JSON, which YAML is too."""
    found = written(text, flow)
    return _edited(text, found, key, json.dumps(value)) if found is not None else None


def written(text: str, flow: str) -> FlowYamlNode | None:
    for found in _flows(text):
        if found.name is not None and found.name.value == flow:
            return found
    return None


def value_of(node: Any, key: str) -> Any:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)


def quoted(style: str | None, word: str) -> str:
    return f"{style}{word}{style}" if style in ("'", '"') else word


def place(text: str, mark: Any) -> int:
    """The place of a mark: its lines end as YAML's do."""
    at = 0
    for _ in range(mark.line):
        at = text.index("\n", at) + 1
    return at + int(mark.column)


def insert_lines(text: str, at: int, lines: str) -> str:
    """Behind the line of a place, and the comment that may stand on it."""
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
    now = value_of(found.flow, key)
    if now is not None:
        start, end = place(text, now.start_mark), place(text, now.end_mark)
        after = text[start:end]
        return text[:start] + word + after[len(after.rstrip()) :] + text[end:]
    behind = place(text, found.name.end_mark)
    line = f"{quoted(found.quotes, key)}: {word}"
    if found.flow.flow_style:
        return f"{text[:behind]}, {line}{text[behind:]}"
    return insert_lines(text, behind, f"{' ' * found.flow.start_mark.column}{line}")
