"""Formats the YAML text of a topology: one order of keys, one indent, one style; every comment stays.

The text is parsed into a tree whose scalars are the characters that the user wrote, so quotes, numbers and
expressions are never rewritten. Each comment belongs to an entry (above it, or behind it on its line) or to
the end of a map or list, and moves with it. The result is read again: a file is only formatted where the new
text has the same values and the same comments.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import yaml

from planner.config import yaml_tree
from planner.config.yaml_tree import Parser, documents
from planner.model import shapes
from planner.model.diagnostic import Failure, error
from planner.model.shapes import RecordShape, Shape

WIDTH = 110  # a map or list in braces that is longer goes to lines of its own
INDENT = 2
_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\n\r\x85\u2028\u2029]*", re.MULTILINE)
_PROPERTY = re.compile(r"[&!]\S*")
_EXPLICIT_INDENT = re.compile(r"[|>][+-]?([1-9])")
_CONTENT = re.compile(r"\S")
_MERGE = "<<"


@dataclass(slots=True, eq=False)
class _Comment:
    start: int
    line: int
    column: int
    text: str
    own_line: bool
    blank_before: bool


@dataclass(slots=True, eq=False)
class _Node:
    """A scalar or an alias with its characters, or a map or list with its entries.

    `properties` are the anchor and the tag of a collection. `inline` collections stand in braces or brackets.
    `foot` are the comments behind the last entry.
    """

    start: int
    end: int
    text: str = ""
    value: str = ""
    style: str = ""
    anchor: str = ""
    is_alias: bool = False
    is_map: bool = False
    is_list: bool = False
    inline: bool = False
    properties: str = ""
    entries: list["_Entry"] = field(default_factory=list)
    foot: list[_Comment] = field(default_factory=list)
    owner: "_Entry | None" = None

    @property
    def is_scalar(self) -> bool:
        return not (self.is_map or self.is_list)

    @property
    def is_literal(self) -> bool:
        return self.style in ("|", ">")


@dataclass(slots=True, eq=False)
class _Entry:
    """A key with its value, or an item of a list, with its comments.

    `inside` are comments below a key that has no value.
    """

    start: int
    column: int
    collection: _Node
    key: _Node | None
    value: _Node
    blank_before: bool
    above: list[_Comment] = field(default_factory=list)
    behind: list[_Comment] = field(default_factory=list)
    inside: list[_Comment] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Document:
    root: _Node
    explicit: bool


def formatted(text: str, shape: Shape | None, file: str = "") -> str:
    """Returns the text in the one style. `shape` gives the order of keys; without one every key stays.

    A text in braces, as JSON is, and one that is no map stay as they are. Failure: the text is not YAML, or
    it can't be formatted without a loss.
    """
    before = _content(text, file)
    source = _Source(text)
    roots = [document.root for document in source.documents]
    if not roots or any(root.inline or root.text for root in roots):
        return text
    for document in source.documents:
        if shape is not None:
            _sort(document.root, shape)
    result = _printed(source)
    if _content(result, file) != before:
        raise Failure(
            error(f"{file}: it can't be formatted without a loss, so it stays as it is", "report this file")
        )
    return result


def _content(text: str, file: str) -> tuple[list[Any], list[str]]:
    """Returns the values and the comments of a text, whatever their order in maps."""
    nodes, found = documents(text, file)
    if found:
        raise Failure(found)
    return [_plain(node) for node in nodes], sorted(one.text for one in _Source(text).comments)


def _plain(node: yaml_tree.Node) -> Any:
    match node:
        case yaml_tree.Scalar():
            return (node.plain, node.text)
        case yaml_tree.Sequence():
            return [_plain(one) for one in node.items]
        case yaml_tree.Mapping():
            return {(key.plain, key.text): _plain(value) for key, value in node.pairs}


class _Source:
    """A text as trees, each of its comments at its place."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = [0, *(end.end() for end in _LINE_END.finditer(text))]
        self._spans: list[tuple[int, int]] = []  # of scalars and aliases
        self.documents: list[_Document] = []
        self._parse()
        self.comments = list(self._find_comments())
        masked = bytearray(len(text))
        for one in self.comments:
            masked[one.start : one.start + len(one.text)] = b"\1" * len(one.text)
        self._masked = "".join(" " if mask else sign for sign, mask in zip(text, masked, strict=True))
        for document in self.documents:
            self._place_entries(document.root)
        self._attach_comments()

    def _offset(self, mark: Any) -> int:
        line, column = int(mark.line), int(mark.column)
        return min(self._lines[line] + column, len(self.text)) if line < len(self._lines) else len(self.text)

    def _line(self, offset: int) -> int:
        return bisect_right(self._lines, offset) - 1

    def _column(self, offset: int) -> int:
        return offset - self._lines[self._line(offset)]

    def _blank_before(self, offset: int) -> bool:
        line = self._line(offset)
        return line > 0 and not self.text[self._lines[line - 1] : self._lines[line]].strip()

    def _parse(self) -> None:
        parser = Parser(self.text)
        open_nodes: list[_Node] = []
        keys: list[_Node | None] = []  # the key that waits for its value, for each open collection
        explicit = False

        def add(node: _Node) -> None:
            if not open_nodes:
                self.documents.append(_Document(node, explicit))
                return
            collection = open_nodes[-1]
            if collection.is_map and keys[-1] is None:
                keys[-1] = node
                return
            entry = _Entry(0, 0, collection, keys[-1], node, blank_before=False)
            node.owner = entry
            collection.entries.append(entry)
            keys[-1] = None

        try:
            while not isinstance(event := parser.get_event(), yaml.StreamEndEvent):
                match event:
                    case yaml.DocumentStartEvent():
                        explicit = bool(event.explicit)
                    case yaml.ScalarEvent() | yaml.AliasEvent():
                        add(self._leaf(event))
                    case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                        node = self._collection(event)
                        add(node)
                        open_nodes.append(node)
                        keys.append(None)
                    case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                        keys.pop()
                        open_nodes.pop().end = self._offset(event.end_mark)
        finally:
            parser.dispose()

    def _leaf(self, event: Any) -> _Node:
        start, end = self._offset(event.start_mark), self._offset(event.end_mark)
        style = getattr(event, "style", None) or ""
        text = self.text[start:end]
        if style not in ("|", ">"):
            text = text.rstrip()
        self._spans.append((start, start + len(text)))
        return _Node(
            start,
            start + len(text),
            text=text,
            value=getattr(event, "value", ""),
            style=style,
            anchor=event.anchor or "",
            is_alias=isinstance(event, yaml.AliasEvent),
        )

    def _collection(self, event: Any) -> _Node:
        start = self._offset(event.start_mark)
        properties, at = [], start
        for _ in range((event.anchor is not None) + (event.tag is not None)):
            if (found := _PROPERTY.match(self.text, at)) is None:
                break
            properties.append(found[0])
            content = _CONTENT.search(self.text, found.end())
            at = content.start() if content is not None else found.end()
        is_map = isinstance(event, yaml.MappingStartEvent)
        return _Node(
            start,
            start,
            anchor=event.anchor or "",
            is_map=is_map,
            is_list=not is_map,
            inline=bool(event.flow_style),
            properties=" ".join(properties),
        )

    def _find_comments(self) -> Iterator[_Comment]:
        """Yields the comments: whatever begins with # between scalars."""
        at = 0
        for start, end in [*self._spans, (len(self.text), len(self.text))]:
            for found in _COMMENT.finditer(self.text, at, max(at, start)):
                offset = found.start()
                line = self._line(offset)
                own_line = not self.text[self._lines[line] : offset].strip()
                yield _Comment(
                    offset,
                    line,
                    self._column(offset),
                    found[0].rstrip(),
                    own_line,
                    own_line and self._blank_before(offset),
                )
            at = max(at, end)

    def _place_entries(self, node: _Node) -> None:
        """Sets where each entry begins: at its key, at the "?" before it, or at its dash."""
        for entry in node.entries:
            first = entry.key or entry.value
            start = first.start
            if not node.inline:
                sign = start - 1
                while sign > 0 and self._masked[sign].isspace():
                    sign -= 1
                if node.is_list or (sign >= 0 and self._masked[sign] == "?"):
                    start = sign
            entry.start, entry.column = start, self._column(start)
            entry.blank_before = self._blank_before(start)
            self._place_entries(entry.value)

    def _attach_comments(self) -> None:
        for document in self.documents:
            self._open_commented(document.root)
        entries = sorted(
            (entry for document in self.documents for entry in _entries(document.root)),
            key=lambda entry: entry.start,
        )
        starts = [entry.start for entry in entries]
        for comment in self.comments if self.documents else ():
            at = bisect_right(starts, comment.start)
            before = entries[at - 1] if at else None
            after = entries[at] if at < len(entries) else None
            self._attach(comment, before, after)

    def _open_commented(self, node: _Node) -> None:
        """Gives collections in braces lines of their own where a comment stands inside."""
        next_comment = bisect_right(self.comments, node.start, key=lambda one: one.start)
        if node.inline and next_comment < len(self.comments):
            node.inline = self.comments[next_comment].start > node.end
        for entry in node.entries:
            self._open_commented(entry.value)

    def _attach(self, comment: _Comment, before: _Entry | None, after: _Entry | None) -> None:
        if before is None:
            if after is None:
                self._root_of(comment).foot.append(comment)
            else:
                after.above.append(comment)
        elif not comment.own_line:
            before.behind.append(comment)
        elif not before.value.text and before.value.is_scalar and comment.column > before.column:
            before.inside.append(comment)
        else:
            around = list(_around(before))
            kept = set(map(id, _around(after))) if after is not None else set()
            ended = [one for one in around if id(one) not in kept] if after is not None else around
            fitting = [one for one in ended if one.entries[0].column <= comment.column] or ended[-1:]
            if after is not None and (not ended or comment.column <= after.column):
                after.above.append(comment)
            else:
                fitting[0].foot.append(comment)

    def _root_of(self, comment: _Comment) -> _Node:
        later = [one.root for one in self.documents if one.root.start >= comment.start]
        return later[0] if later else self.documents[-1].root


def _entries(node: _Node) -> Iterator[_Entry]:
    """Yields the entries that get lines of their own."""
    if not node.inline:
        for entry in node.entries:
            yield entry
            yield from _entries(entry.value)


def _around(entry: _Entry | None) -> Iterator[_Node]:
    """Yields the collections around an entry, from the inside."""
    while entry is not None:
        yield entry.collection
        entry = entry.collection.owner


def _sort(root: _Node, shape: Shape) -> None:
    """Brings the keys of records into the order of the language, unless an alias would lose its anchor."""
    order = {id(node): list(node.entries) for node in _nodes(root)}
    before = _aliases(root)
    if not root.entries:
        return
    # What stands at the top of the file stays there.
    head, root.entries[0].above = root.entries[0].above, []
    apart, root.entries[0].blank_before = root.entries[0].blank_before, False
    _sort_record(root, shape)
    if _aliases(root) != before:
        for node in _nodes(root):
            node.entries = order[id(node)]
    first = root.entries[0]
    if head and first.above:
        first.above[0].blank_before = True
    elif head:
        first.blank_before = apart
    first.above[:0] = head


def _nodes(node: _Node) -> Iterator[_Node]:
    yield node
    for entry in node.entries:
        yield from _nodes(entry.value)


def _aliases(root: _Node) -> set[tuple[int, int]]:
    """Returns which alias stands for which anchored node."""
    found: set[tuple[int, int]] = set()
    anchors: dict[str, int] = {}

    def walk(node: _Node) -> None:
        if node.is_alias:
            found.add((node.start, anchors.get(node.anchor, -1)))
        elif node.anchor:
            anchors[node.anchor] = node.start
        for entry in node.entries:
            if entry.key is not None:
                walk(entry.key)
            walk(entry.value)

    walk(root)
    return found


def _sort_record(node: _Node, shape: Shape | None) -> None:
    match shape:
        case shapes.OffOrShape():
            _sort_record(node, shape.shape)
        case shapes.AlternativesShape():
            _sort_record(node, _nearest(node, shape))
        case shapes.ListShape():
            for entry in node.entries if node.is_list else ():
                _sort_record(entry.value, shape.item)
            if shape.lone and not node.is_list:
                _sort_record(node, shape.item)
        case shapes.MapShape() if node.is_map:
            for entry in node.entries:
                _sort_record(entry.value, shape.value)
        case RecordShape() if node.is_map:
            places = {name: place for place, name in enumerate([_MERGE, *shape.by_name])}
            node.entries.sort(key=lambda entry: places.get(_name(entry), len(places)))
            for entry in node.entries:
                key = shape.by_name.get(_name(entry))
                _sort_record(entry.value, key.shape if key is not None else None)
        case _:
            pass


def _name(entry: _Entry) -> str:
    return entry.key.value if entry.key is not None else ""


def _nearest(node: _Node, shape: shapes.AlternativesShape) -> Shape | None:
    """Returns the record among the alternatives that knows most of the keys."""
    names = {_name(entry) for entry in node.entries}
    records = [one for one in shape.alternatives if isinstance(one, RecordShape)]
    return max(records, key=lambda one: len(names & set(one.by_name)), default=None)


def _printed(source: _Source) -> str:
    lines: list[str] = []
    for number, document in enumerate(source.documents):
        if number or document.explicit:
            lines.append("---")
        lines += _root(document.root)
    return "\n".join(lines) + "\n"


def _root(root: _Node) -> list[str]:
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


def _block(node: _Node, indent: int) -> list[str]:
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


def _apart(entry: _Entry) -> bool:
    return entry.above[0].blank_before if entry.above else entry.blank_before


def _keeps_line_ends(node: _Node) -> bool:
    """Returns whether a blank line behind the node would be part of its last text: `|+` keeps them."""
    if node.is_scalar:
        return node.is_literal and "+" in node.text.partition("\n")[0].partition("#")[0]
    return bool(node.entries) and not node.foot and _keeps_line_ends(node.entries[-1].value)


def _foot(node: _Node, indent: int) -> list[str]:
    if not node.foot:
        return []
    apart = node.foot[0].blank_before and bool(node.entries) and not _keeps_line_ends(node.entries[-1].value)
    return [*([""] if apart else []), *_comments(node.foot, indent)]


def _comments(comments: Iterable[_Comment], indent: int) -> list[str]:
    lines: list[str] = []
    for one in comments:
        if lines and one.blank_before:
            lines.append("")
        lines.append(f"{' ' * indent}{one.text}")
    return lines


def _entry(entry: _Entry, indent: int) -> tuple[list[str], list[str]]:
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


def _key(key: _Node) -> str:
    if not key.is_scalar or "\n" in key.text:
        raise Failure(error(f"a key over several lines: {key.text[:40]!r}", "write the key as one word"))
    return f"{key.text} :" if key.is_alias else f"{key.text}:"


def _scalar(lead: str, node: _Node, indent: int) -> list[str]:
    if not node.text:
        return [lead]
    first, *rest = node.text.split("\n")
    margin = " " * (indent + INDENT)
    if not node.is_literal:
        return [f"{lead} {first}", *(f"{margin}{line.lstrip()}".rstrip(" ") or "" for line in rest)]
    written, told = (
        next((one for one in lines if one.strip()), "") for lines in (rest, node.value.split("\n"))
    )
    skipped = _spaces(written) - _spaces(told)
    if explicit := _EXPLICIT_INDENT.search(first.partition("#")[0]):
        margin = " " * (indent + int(explicit[1]))
    body = [f"{margin}{line[skipped:]}" if line[skipped:] else "" for line in rest[:-1]]
    while body and not body[-1] and not _keeps_line_ends(node):
        body.pop()
    return [f"{lead} {first.rstrip()}", *body]


def _spaces(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _inline(node: _Node) -> str:
    """Returns a node on one line, as far as its scalars are."""
    if node.is_scalar:
        return node.text
    inside = ", ".join(
        f"{_key(entry.key)} {_inline(entry.value)}" if entry.key is not None else _inline(entry.value)
        for entry in node.entries
    )
    properties = f"{node.properties} " if node.properties else ""
    return f"{properties}{{{inside}}}" if node.is_map else f"{properties}[{inside}]"


def _opened(lead: str, node: _Node, indent: int, *, is_item: bool) -> tuple[list[str], list[str]]:
    """Returns a map or list on lines of its own, and the comments that must stand above its dash."""
    lines = _block(node, indent + INDENT)
    if node.properties or not is_item:
        return [], [f"{lead} {node.properties}".rstrip(), *lines]
    comments = list(takewhile(lambda line: line.lstrip().startswith("#") or not line, lines))
    first, *rest = lines[len(comments) :]
    above = [f"{' ' * indent}{line.lstrip()}" for line in comments if line]
    return above, [f"{lead} {first.lstrip()}", *rest]
