"""Formats the YAML text of a topology: one order of keys, one indent, one style; every comment stays.

The tree of `planner.config.yaml_text` is sorted and printed. The result is read again: a file is only
formatted where the new text has the same values and the same comments.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any

from planner.config import yaml_tree
from planner.config.yaml_text import Comment, Entry, NodeKind, TextNode, YamlText
from planner.config.yaml_tree import documents
from planner.model.diagnostic import Failure, error
from runtime.contract.spec import shapes
from runtime.contract.spec.shapes import RecordShape, Shape

WIDTH = 110  # a map or list in braces that is longer goes to lines of its own
INDENT = 2
_EXPLICIT_INDENT = re.compile(r"[|>][+-]?([1-9])")
_MERGE = "<<"


def formatted(text: str, shape: Shape | None, file: str = "") -> str:
    """Returns the text in the one style. `shape` gives the order of keys; without one every key stays.

    A text in braces, as JSON is, and one that is no map stay as they are. Failure: the text is not YAML, or
    it can't be formatted without a loss.
    """
    values = _values(text, file)
    source = YamlText(text, file)
    roots = source.documents
    if not roots or any(root.inline or root.text for root in roots):
        return text
    for root in roots:
        if shape is not None:
            _sort(root, shape)
    result = _printed(source)
    if _values(result, file) != values or _comment_texts(YamlText(result, file)) != _comment_texts(source):
        raise Failure(
            error(f"{file}: it can't be formatted without a loss, so it stays as it is", "report this file")
        )
    return result


def _comment_texts(source: YamlText) -> list[str]:
    return sorted(comment.text for comment in source.comments)


def _values(text: str, file: str) -> list[Any]:
    """Returns the values of a text, whatever the order of keys in its maps."""
    nodes, diagnostics = documents(text, file)
    if diagnostics:
        raise Failure(diagnostics)
    return [_plain(node) for node in nodes]


def _plain(node: yaml_tree.Node) -> Any:
    match node:
        case yaml_tree.ScalarNode():
            return (node.plain, node.text)
        case yaml_tree.ListNode():
            return [_plain(item) for item in node.items]
        case yaml_tree.MapNode():
            return {(key.plain, key.text): _plain(value) for key, value in node.pairs}


def _sort(root: TextNode, shape: Shape) -> None:
    """Brings the keys of records into the order of the language, unless an alias would lose its anchor."""
    order = {id(node): list(node.entries) for node in _nodes(root)}
    if not root.entries:
        return
    # What stands at the top of the file stays there.
    head, root.entries[0].above = root.entries[0].above, []
    apart, root.entries[0].blank_before = root.entries[0].blank_before, False
    _sort_record(root, shape)
    if not _aliases_hold(root, {}):
        for node in _nodes(root):
            node.entries = order[id(node)]
    first = root.entries[0]
    if head and first.above:
        first.above[0].blank_before = True
    elif head:
        first.blank_before = apart
    first.above[:0] = head


def _nodes(node: TextNode) -> Iterator[TextNode]:
    yield node
    for entry in node.entries:
        yield from _nodes(entry.value)


def _aliases_hold(node: TextNode, anchors: dict[str, TextNode]) -> bool:
    """Returns whether each alias still stands for the same node. `anchors` are those before this node."""
    if node.kind is NodeKind.ALIAS:
        return anchors.get(node.anchor) is node.target
    if node.anchor:
        anchors[node.anchor] = node
    parts = (part for entry in node.entries for part in (entry.key, entry.value) if part is not None)
    return all(_aliases_hold(part, anchors) for part in parts)


def _sort_record(node: TextNode, shape: Shape | None) -> None:
    match shape:
        case shapes.OffOrShape():
            _sort_record(node, shape.shape)
        case shapes.AlternativesShape():
            names = {entry.name for entry in node.entries}
            records = [record for record in shape.alternatives if isinstance(record, RecordShape)]
            nearest = max(records, key=lambda record: len(names & set(record.by_name)), default=None)
            _sort_record(node, nearest)
        case shapes.ListShape():
            for entry in node.entries if node.kind is NodeKind.LIST else ():
                _sort_record(entry.value, shape.item)
            if shape.lone and node.kind is not NodeKind.LIST:
                _sort_record(node, shape.item)
        case shapes.MapShape() if node.kind is NodeKind.MAP:
            for entry in node.entries:
                _sort_record(entry.value, shape.value)
        case RecordShape() if node.kind is NodeKind.MAP:
            places = {name: place for place, name in enumerate([_MERGE, *shape.by_name])}
            node.entries.sort(key=lambda entry: places.get(entry.name, len(places)))
            for entry in node.entries:
                key = shape.by_name.get(entry.name)
                _sort_record(entry.value, key.shape if key is not None else None)
        case _:
            pass


def _printed(source: YamlText) -> str:
    lines: list[str] = []
    for number, document in enumerate(source.documents):
        if number or document.explicit:
            lines.append("---")
        lines += _root(document)
    return "\n".join(lines) + "\n"


def _root(root: TextNode) -> list[str]:
    """Returns a document. A blank line stands around each section that has several lines."""
    if root.is_scalar:
        return _comments(root.foot, 0)
    lines: list[str] = []
    long, open_end = False, True
    for entry in root.entries:
        above, body = _entry(entry, 0)
        was_long, long = long, len(body) > 1
        if not open_end and (long or was_long or _apart(entry)):
            lines.append("")
        lines += above + body
        open_end = _keeps_line_ends(entry.value)
    return [*lines, *_foot(root, 0)]


def _block(node: TextNode, indent: int) -> list[str]:
    """Returns the entries of a map or list, each on lines of its own. Blank lines stay, as one."""
    lines: list[str] = []
    open_end = True
    for entry in node.entries:
        if _apart(entry) and not open_end:
            lines.append("")
        above, body = _entry(entry, indent)
        lines += above + body
        open_end = _keeps_line_ends(entry.value)
    return lines + _foot(node, indent)


def _apart(entry: Entry) -> bool:
    return entry.above[0].blank_before if entry.above else entry.blank_before


def _keeps_line_ends(node: TextNode) -> bool:
    """Returns whether a blank line behind the node would be part of its last text: `|+` keeps them."""
    if node.is_scalar:
        return node.is_literal and "+" in node.text.partition("\n")[0].partition("#")[0]
    return bool(node.entries) and not node.foot and _keeps_line_ends(node.entries[-1].value)


def _foot(node: TextNode, indent: int) -> list[str]:
    if not node.foot:
        return []
    apart = node.foot[0].blank_before and bool(node.entries) and not _keeps_line_ends(node.entries[-1].value)
    return [*([""] if apart else []), *_comments(node.foot, indent)]


def _comments(comments: Iterable[Comment], indent: int) -> list[str]:
    lines: list[str] = []
    for comment in comments:
        if lines and comment.blank_before:
            lines.append("")
        lines.append(f"{' ' * indent}{comment.text}")
    return lines


def _entry(entry: Entry, indent: int) -> tuple[list[str], list[str]]:
    """Returns the lines of an entry: the comments above it, and its key or dash with its value."""
    value = entry.value
    above = _comments([*entry.above, *entry.behind[:-1]], indent)
    if entry.above and entry.blank_before:
        above.append("")
    behind = entry.behind[-1] if entry.behind else None
    lead = " " * indent + (_key(entry.key) if entry.key is not None else "-")
    line = "\n" if not value.inline else f"{lead} {_inline(value)}"
    if value.is_scalar:
        body = _scalar(lead, value, indent)
    elif "\n" not in line and (len(line) <= WIDTH or not value.entries):
        body = [line]
    else:
        comments, body = _opened(lead, value, indent, is_item=entry.key is None)
        if entry.key is None and behind is not None and not value.properties:
            above, behind = [*above, *_comments([behind], indent)], None  # it stood behind a dash alone
        above += comments
    if behind is not None:
        at = len(body) - 1 if value.is_scalar else 0
        aligned = 0 if value.inline and len(body) > 1 else behind.column + indent - entry.column
        body[at] = f"{body[at]:{max(len(body[at]) + 2, aligned)}}{behind.text}"
    return above, [*body, *_comments(entry.inside, indent + INDENT)]


def _key(key: TextNode) -> str:
    if not key.is_scalar or "\n" in key.text:
        raise Failure(error(f"a key over several lines: {key.text[:40]!r}", "write the key as one word"))
    return f"{key.text} :" if key.kind is NodeKind.ALIAS else f"{key.text}:"


def _scalar(lead: str, node: TextNode, indent: int) -> list[str]:
    if not node.text:
        return [lead]
    first, *rest = node.text.split("\n")
    margin = " " * (indent + INDENT)
    if not node.is_literal:
        return [f"{lead} {first}", *(f"{margin}{line.lstrip()}".rstrip(" ") or "" for line in rest)]
    written, value = (
        next((line for line in lines if line.strip()), "") for lines in (rest, node.value.split("\n"))
    )
    skipped = _spaces(written) - _spaces(value)
    if explicit := _EXPLICIT_INDENT.search(first.partition("#")[0]):
        margin = " " * (indent + int(explicit[1]))
    body = [f"{margin}{line[skipped:]}" if line[skipped:] else "" for line in rest[:-1]]
    while body and not body[-1] and not _keeps_line_ends(node):
        body.pop()
    return [f"{lead} {first.rstrip()}", *body]


def _spaces(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _inline(node: TextNode) -> str:
    """Returns a node on one line, as far as its scalars are."""
    if node.is_scalar:
        return node.text
    inside = ", ".join(
        f"{_key(entry.key)} {_inline(entry.value)}" if entry.key is not None else _inline(entry.value)
        for entry in node.entries
    )
    properties = f"{node.properties} " if node.properties else ""
    return f"{properties}{{{inside}}}" if node.kind is NodeKind.MAP else f"{properties}[{inside}]"


def _opened(lead: str, node: TextNode, indent: int, *, is_item: bool) -> tuple[list[str], list[str]]:
    """Returns a map or list on lines of its own, and the comments that must stand above its dash."""
    lines = _block(node, indent + INDENT)
    if node.properties or not is_item:
        return [], [f"{lead} {node.properties}".rstrip(), *lines]
    comments = list(takewhile(lambda line: line.lstrip().startswith("#") or not line, lines))
    first, *rest = lines[len(comments) :]
    above = [f"{' ' * indent}{line.lstrip()}" for line in comments if line]
    return above, [f"{lead} {first.lstrip()}", *rest]
