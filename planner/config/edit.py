"""Edits the YAML text of a topology: one key or one flow changes, and every other character stays."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import yaml

from planner.config.yaml_text import NodeKind, TextNode, YamlText

STATE = "state"
PROMOTED = "promoted"
FENCED = "fenced"
# Keys that the reverse flow takes from the flow. Its topics follow from the flow's; its start, state and job
# are its own.
KEPT = (
    "provenance",
    "configs",
    "groups",
    "acls",
    "quotas",
    "schemas",
    "protect",
    "rpo",
    "rate_limit",
    "follow",
    "heartbeats",
    "checkpoints",
)
_SPECIAL = re.compile(r"[,\[\]{}]|^[&*!|>%@`]")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")


class FlowText(NamedTuple):
    """A flow, or a wave of a cutover, in a text: its map, its name, its list, and the quotes of its keys."""

    text: YamlText
    flow: TextNode
    name: TextNode
    flows: TextNode
    quotes: str

    @property
    def as_json(self) -> bool:
        return self.quotes == '"'

    def is_named(self, name: str) -> bool:
        return self.name.resolved.value == name


def with_states(text: str, states: Mapping[str, str]) -> str | None:
    """Returns the text in which these flows have these states; None if one of them is not in this text.

    The text is parsed once, however many flows there are.
    """
    written = {flow.name.resolved.value: flow for flow in reversed(list(_flows(text)))}  # the first of a name
    if not states.keys() <= written.keys():
        return None
    edits: dict[tuple[int, int], str] = {}  # flows that share a text share its edit
    for name, state in states.items():
        flow = written[name]
        entry = flow.flow.entry(STATE)
        quotes = flow.quotes if entry is None else _quotes(entry.value.resolved)
        start, end, words = _key_edit(flow, STATE, f"{quotes}{state}{quotes}")
        edits[start, end] = words
    for (start, end), words in sorted(edits.items(), reverse=True):  # from the end: no edit moves another
        text = _replaced(text, start, end, words)
    return text


def with_fenced(text: str, cutover: str, wave: str, *, fenced: bool) -> str | None:
    """Returns the text in which the wave is fenced, or not; None if the wave is not in this text."""
    source = YamlText(text)
    for document in source.documents:
        for item in _items(source, document, "cutovers"):
            for written in _items(source, item.flow, "waves") if item.is_named(cutover) else ():
                if written.is_named(wave):
                    return _with_key(written, FENCED, "true" if fenced else "false")
    return None


def find_flow(text: str, flow: str) -> FlowText | None:
    return next((written for written in _flows(text) if written.is_named(flow)), None)


def _flows(text: str) -> Iterator[FlowText]:
    source = YamlText(text)
    for document in source.documents:
        yield from _items(source, document, "flows")


def _items(source: YamlText, parent: TextNode, key: str) -> Iterator[FlowText]:
    """Yields the items with a name of a list that is the value of a key."""
    listed = parent.entry(key)
    for item in listed.value.resolved.entries if listed is not None else ():
        node = item.value.resolved
        entry = node.entry("name")
        if entry is not None and entry.key is not None:
            yield FlowText(source, node, entry.value, item.collection, _quotes(entry.key))


def _quotes(node: TextNode) -> str:
    return node.style if node.style in ("'", '"') else ""


def _with_key(written: FlowText, key: str, value: str) -> str:
    """Returns the text in which a key has this value: in place of its own, or behind the name."""
    return _replaced(written.text.text, *_key_edit(written, key, value))


def _key_edit(written: FlowText, key: str, value: str) -> tuple[int, int, str]:
    """Returns which part of the text to replace, and by what, so that a key has this value."""
    text, entry = written.text.text, written.flow.entry(key)
    if entry is not None:
        return entry.value.start, _content_end(text, entry.value), value
    pair = f"{written.quotes}{key}{written.quotes}: {value}"
    if written.flow.braces:
        return written.name.end, written.name.end, f", {pair}"
    return _lines_below(text, written.name.end, f"{' ' * written.flow.entries[0].column}{pair}")


def _content_end(text: str, node: TextNode) -> int:
    """Returns the end of a value, without the line ends of a text of several lines."""
    return node.start + len(text[node.start : node.end].rstrip())


def _replaced(text: str, start: int, end: int, words: str) -> str:
    return f"{text[:start]}{words}{text[end:]}"


def _insert_lines(text: str, at: int, lines: str) -> str:
    """Returns the text with lines inserted below the line of a position and its comment."""
    return _replaced(text, *_lines_below(text, at, lines))


def _lines_below(text: str, at: int, lines: str) -> tuple[int, int, str]:
    """Returns where to insert lines below the line of a position, and with which line ends."""
    end = text.find("\n", at)
    return (len(text), len(text), f"\n{lines}\n") if end < 0 else (end + 1, end + 1, f"{lines}\n")


def with_promoted(text: str, flow: str, pattern: str) -> str | None:
    """Returns the text with one more pattern; None if the flow is not in this text."""
    if (written := find_flow(text, flow)) is None:
        return None
    word = _quoted_pattern(pattern, written)
    entry = written.flow.entry(PROMOTED)
    if entry is None:
        return _with_key(written, PROMOTED, f"[{word}]")
    node, patterns = entry.value, entry.value.resolved
    items = [item.value for item in patterns.entries] if patterns.kind is NodeKind.LIST else [patterns]
    if NodeKind.ALIAS in (node.kind, *(item.kind for item in items)):
        # The anchor may belong to another flow too: the list is written out here.
        words = [_quoted_pattern(item.resolved.value, written) for item in items]
        return _with_key(written, PROMOTED, f"[{', '.join([*words, word])}]")
    if node.kind is not NodeKind.LIST:
        return _with_key(written, PROMOTED, f"[{node.text}, {word}]")
    if not items:
        return _replaced(text, node.end - 1, node.end - 1, word)
    end = _content_end(text, items[-1])
    if node.braces:
        return _replaced(text, end, end, f", {word}")
    return _insert_lines(text, end, f"{' ' * node.entries[0].column}- {word}")


def without_promoted(text: str, flow: str, kept: Sequence[str] = ()) -> str | None:
    """Returns the text in which only these patterns of a flow stay promoted; None if it is not there."""
    if (written := find_flow(text, flow)) is None:
        return None
    patterns = ", ".join(_quoted_pattern(pattern, written) for pattern in kept)
    return _with_key(written, PROMOTED, f"[{patterns}]")


def _quoted_pattern(pattern: str, written: FlowText) -> str:
    doubled = pattern.replace("'", "''")
    return json.dumps(pattern) if written.as_json else f"'{doubled}'"


def with_reverse_flow(
    text: str, flow: str, name: str, exclude: Sequence[str] = (), *, job: str = "", groups: bool = True
) -> str | None:
    """Returns the text with the reverse flow; None if the flow is not there, or nothing fits beside it.

    Without `groups` it syncs no groups. Without `job` it runs in the job of its destination.
    """
    if (written := find_flow(text, flow)) is None:
        return None
    pairs = _reverse_pairs(written, name, exclude)
    if job:
        pairs["job"] = _word(job, written.as_json)
    if not groups:
        pairs.pop("groups", None)
        pairs["groups"] = f"{{{written.quotes}sync{written.quotes}: false}}"
    lines = [f"{written.quotes}{key}{written.quotes}: {value}" for key, value in pairs.items()]
    if not written.flow.braces:
        return _below(written, lines)
    item = "{" + ", ".join(lines) + "}"
    return _beside(written, item) if written.flows.braces else _below(written, [item])


def _reverse_pairs(written: FlowText, name: str, exclude: Sequence[str]) -> dict[str, str]:
    """Returns the keys of the reverse flow, and their values as they are written."""
    flow, as_json = written.flow, written.as_json
    source, destination = flow.get("from"), flow.get("to")
    assert source is not None
    assert destination is not None
    topics = {"include": [".*"], **({"exclude": list(exclude)} if exclude else {})}
    lists = (f"{key}: [{', '.join(map(_single_quoted, names))}]" for key, names in topics.items())
    kept = {key: node for key in KEPT if (node := flow.get(key)) is not None}
    return {
        "name": _word(name, as_json),
        "reverse_of": _word(written.name.resolved.value, as_json),
        "from": _word(destination.value, as_json),
        "to": _word(source.value, as_json),
        "topics": json.dumps(topics, ensure_ascii=False) if as_json else "{" + ", ".join(lists) + "}",
        **{key: _on_one_line(node, as_json) for key, node in kept.items()},
    }


def _below(written: FlowText, lines: Sequence[str]) -> str | None:
    """Returns the text with an entry of a block list below the flow, and below comments that are in line with
    its keys.
    """
    text, start = written.text.text, written.flow.start
    column = written.text.column(start)
    lead = text[start - column : start]
    if not re.fullmatch(r"\s*-\s+", lead):
        return None
    first, *rest = lines
    block = "\n".join([f"{lead}{first}", *(f"{' ' * column}{line}" for line in rest)])
    end = written.flow.end
    end -= text[end - 1] == "\n"  # a text of several lines ends behind its last line end
    flow_end = re.compile(rf"[^\n]*(?:\n {{{column},}}#[^\n]*)*").match(text, end)
    assert flow_end is not None
    end = flow_end.end()
    apart = re.match(r"\n[ \t]*\n", text[end:])  # a blank line as between the other flows
    return _insert_lines(text, end, f"\n{block}" if apart else block)


def _beside(written: FlowText, item: str) -> str:
    """Returns the text with an entry of a bracketed list behind the flow, on its own line like the flow."""
    text, start = written.text.text, written.flow.start
    lead = text[start - written.text.column(start) : start]
    between = f",\n{lead}" if not lead.strip() and "\n" in text else ", "
    return _replaced(text, written.flow.end, written.flow.end, f"{between}{item}")


def _on_one_line(node: TextNode, as_json: bool) -> str:
    """Returns a node as it is written, on one line, with its aliases written out."""
    node = node.resolved
    values = [_on_one_line(entry.value, as_json) for entry in node.entries]
    match node.kind:
        case NodeKind.MAP:
            keys = [_on_one_line(entry.key, as_json) for entry in node.entries if entry.key is not None]
            return "{" + ", ".join(f"{key}: {value}" for key, value in zip(keys, values, strict=True)) + "}"
        case NodeKind.LIST:
            return "[" + ", ".join(values) + "]"
        case _ if not node.style and not _SPECIAL.search(node.value):
            return node.value
        case _:
            return json.dumps(node.value, ensure_ascii=False) if as_json else _single_quoted(node.value)


def _word(value: str, as_json: bool) -> str:
    if as_json:
        return json.dumps(value, ensure_ascii=False)
    plain = _PLAIN.fullmatch(value) and yaml.safe_load(value) == value
    return value if plain else _single_quoted(value)


def _single_quoted(value: str) -> str:
    if "\n" in value:
        return json.dumps(value, ensure_ascii=False)
    return "'" + value.replace("'", "''") + "'"
