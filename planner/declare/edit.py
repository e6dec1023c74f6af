"""One flow's `state` in the text of a topology: that word changes, and every other character stays."""

from collections.abc import Iterator
from typing import Any

import yaml

from planner.declare.parse import Parser

STATE = "state"


def with_state(text: str, flow: str, state: str) -> str | None:
    """The text in which the flow has the state; None where it does not write the flow out."""
    for found in _flows(text):
        name = _value(found, "name")
        if name is not None and name.value == flow:
            return _edited(text, found, name, state)
    return None


def _flows(text: str) -> Iterator[Any]:
    for document in yaml.compose_all(text, Loader=Parser):
        flows = _value(document, "flows")
        if isinstance(flows, yaml.SequenceNode):
            yield from (one for one in flows.value if isinstance(one, yaml.MappingNode))


def _value(node: Any, key: str) -> Any:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)


def _edited(text: str, flow: Any, name: Any, state: str) -> str:
    now = _value(flow, STATE)
    if now is not None:
        start, end = _at(text, now.start_mark), _at(text, now.end_mark)
        return text[:start] + _quoted(now.style, state) + text[end:]
    after = _at(text, name.end_mark)
    key = next(one for one, _ in flow.value if one.value == "name")
    word = f"{_quoted(key.style, STATE)}: {_quoted(key.style, state)}"
    if flow.flow_style:
        return f"{text[:after]}, {word}{text[after:]}"
    return _line_after(text, after, f"{' ' * key.start_mark.column}{word}")


def _line_after(text: str, place: int, line: str) -> str:
    """Behind a comment that stands on the line of the flow's name."""
    end = text.find("\n", place)
    if end < 0:
        return f"{text}\n{line}\n"
    return f"{text[: end + 1]}{line}\n{text[end + 1 :]}"


def _quoted(style: str | None, word: str) -> str:
    return f"{style}{word}{style}" if style in ("'", '"') else word


def _at(text: str, mark: Any) -> int:
    """The place of a mark: its lines end as YAML's do."""
    place = 0
    for _ in range(mark.line):
        place = text.index("\n", place) + 1
    return place + int(mark.column)
