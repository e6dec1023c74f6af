"""Edits the YAML text of a topology: one key or one flow changes, and every other character stays."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import yaml

from planner.config.yaml_tree import Parser

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
            return insert_lines(text, _end_of_item(text, last), line)
        case yaml.SequenceNode(value=[*_, last]):
            return _inserted(text, _end_of_item(text, last), f", {word}")
        case yaml.SequenceNode():
            return _inserted(text, place(text, patterns.start_mark) + 1, word)
        case one:
            start, end = place(text, one.start_mark), _end_of_item(text, one)
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


def _end_of_item(text: str, node: Any) -> int:
    """Returns the end of a value, without the blanks behind it."""
    start, end = place(text, node.start_mark), place(text, node.end_mark)
    return start + len(text[start:end].rstrip())


def _inserted(text: str, at: int, words: str) -> str:
    return f"{text[:at]}{words}{text[at:]}"


# Keys that the reverse flow takes from the flow. Its topics follow from the flow's; its start, state and job
# are its own.
KEPT = (
    "provenance",
    "configs",
    "groups",
    "acls",
    "quotas",
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
