"""Parses YAML text into a tree that keeps every character: `repl fmt` prints it, edits use its places.

The scalars of the tree are the characters that the user wrote, so quotes, numbers and expressions are never
rewritten. Aliases stay aliases. Each comment belongs to an entry (above it, or behind it on its line) or to
the end of a map or list, and moves with it. `planner.config.yaml_tree` parses the same events into values.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import yaml

from planner.config.yaml_tree import parsing, refuse_deeper

_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\n\r\x85\u2028\u2029]*", re.MULTILINE)
_PROPERTY = re.compile(r"[&!]\S*")
_CONTENT = re.compile(r"\S")


@dataclass(slots=True, eq=False)
class Comment:
    start: int
    column: int
    text: str
    own_line: bool
    blank_before: bool


class NodeKind(Enum):
    SCALAR = auto()
    ALIAS = auto()
    MAP = auto()
    LIST = auto()


@dataclass(slots=True, eq=False)
class TextNode:
    """A scalar or an alias with its characters, or a map or list with its entries.

    `start` and `end` are positions in the text; a map or list on lines of its own ends with its last value.
    `target` is the node that an alias stands for. Of a collection, `properties` are the anchor and the tag,
    `braces` says that it stands in braces or brackets, `inline` that no comment stands inside these, and
    `foot` are the comments behind the last entry. The root of a document is `explicit` where `---` stands
    before it.
    """

    kind: NodeKind
    start: int
    end: int
    text: str = ""
    value: str = ""
    style: str = ""
    anchor: str = ""
    target: "TextNode | None" = None
    properties: str = ""
    braces: bool = False
    inline: bool = False
    entries: list["Entry"] = field(default_factory=list)
    foot: list[Comment] = field(default_factory=list)
    owner: "Entry | None" = None
    explicit: bool = False

    @property
    def is_scalar(self) -> bool:
        return self.kind in (NodeKind.SCALAR, NodeKind.ALIAS)

    @property
    def is_literal(self) -> bool:
        return self.style in ("|", ">")

    @property
    def resolved(self) -> "TextNode":
        return self.target or self

    def entry(self, key: str) -> "Entry | None":
        """Returns the entry of a key, as far as the map itself writes it."""
        return next((entry for entry in self.entries if entry.name == key), None)

    def get(self, key: str) -> "TextNode | None":
        """Returns the value of a key, also of one that comes from a map behind `<<`; aliases are followed."""
        if (entry := self.entry(key)) is not None:
            return entry.value.resolved
        if (merged := self.entry("<<")) is None:
            return None
        behind = merged.value.resolved
        maps = (
            [entry.value.resolved for entry in behind.entries] if behind.kind is NodeKind.LIST else [behind]
        )
        values = (entry.value.resolved for node in maps if (entry := node.entry(key)) is not None)
        return next(values, None)


@dataclass(slots=True, eq=False)
class Entry:
    """A key with its value, or an item of a list, with its comments.

    It begins at its key, at the "?" before it, or at its dash. `inside` are comments below a key that has no
    value.
    """

    collection: TextNode
    key: TextNode | None
    value: TextNode
    start: int = 0
    column: int = 0
    blank_before: bool = False
    above: list[Comment] = field(default_factory=list)
    behind: list[Comment] = field(default_factory=list)
    inside: list[Comment] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.key.resolved.value if self.key is not None else ""


class YamlText:
    """A text as trees, each of its comments at its place. Failure: it is not YAML."""

    def __init__(self, text: str, file: str = "") -> None:
        self.text = text
        self._lines = [0, *(end.end() for end in _LINE_END.finditer(text))]
        self._spans: list[tuple[int, int]] = []  # of scalars and aliases
        self.documents: list[TextNode] = []  # their roots
        self._parse(file)
        self.comments = list(self._find_comments())
        without_comments = list[str]()
        at = 0
        for comment in self.comments:
            without_comments += text[at : comment.start], " " * len(comment.text)
            at = comment.start + len(comment.text)
        self._without_comments = "".join([*without_comments, text[at:]])
        for document in self.documents:
            self._place_entries(document)
        self._attach_comments()

    def column(self, offset: int) -> int:
        return offset - self._lines[self._line(offset)]

    def _offset(self, mark: Any) -> int:
        line, column = int(mark.line), int(mark.column)
        return min(self._lines[line] + column, len(self.text)) if line < len(self._lines) else len(self.text)

    def _line(self, offset: int) -> int:
        return bisect_right(self._lines, offset) - 1

    def _blank_before(self, offset: int) -> bool:
        line = self._line(offset)
        return line > 0 and not self.text[self._lines[line - 1] : self._lines[line]].strip()

    def _parse(self, file: str) -> None:
        open_nodes: list[TextNode] = []
        keys: list[TextNode | None] = []  # the key that waits for its value, for each open collection
        anchors: dict[str, TextNode] = {}
        explicit = False

        def add(node: TextNode) -> None:
            if node.kind is NodeKind.ALIAS:
                node.target = anchors.get(node.anchor)
            elif node.anchor:
                anchors[node.anchor] = node
            if not open_nodes:
                node.explicit = explicit
                self.documents.append(node)
                return
            collection = open_nodes[-1]
            if collection.kind is NodeKind.MAP and keys[-1] is None:
                keys[-1] = node
                return
            node.owner = Entry(collection, keys[-1], node)
            collection.entries.append(node.owner)
            keys[-1] = None

        with parsing(self.text, file) as next_event:
            while not isinstance(event := next_event(), yaml.StreamEndEvent):
                match event:
                    case yaml.DocumentStartEvent():
                        explicit = bool(event.explicit)
                        anchors.clear()
                    case yaml.ScalarEvent() | yaml.AliasEvent():
                        add(self._leaf(event))
                    case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                        refuse_deeper(len(open_nodes) + 1, event, file)
                        node = self._collection(event)
                        add(node)
                        open_nodes.append(node)
                        keys.append(None)
                    case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                        keys.pop()
                        node = open_nodes.pop()
                        own_lines = node.entries and not node.braces
                        node.end = node.entries[-1].value.end if own_lines else self._offset(event.end_mark)

    def _leaf(self, event: Any) -> TextNode:
        start, end = self._offset(event.start_mark), self._offset(event.end_mark)
        style = getattr(event, "style", None) or ""
        text = self.text[start:end]
        if style not in ("|", ">"):
            text = text.rstrip()
        self._spans.append((start, start + len(text)))
        return TextNode(
            NodeKind.ALIAS if isinstance(event, yaml.AliasEvent) else NodeKind.SCALAR,
            start,
            start + len(text),
            text=text,
            value=getattr(event, "value", ""),
            style=style,
            anchor=event.anchor or "",
        )

    def _collection(self, event: Any) -> TextNode:
        start = self._offset(event.start_mark)
        properties, at = [], start
        for _ in range((event.anchor is not None) + (event.tag is not None)):
            if (written := _PROPERTY.match(self.text, at)) is None:
                break
            properties.append(written[0])
            content = _CONTENT.search(self.text, written.end())
            at = content.start() if content is not None else written.end()
        return TextNode(
            NodeKind.MAP if isinstance(event, yaml.MappingStartEvent) else NodeKind.LIST,
            start,
            start,
            anchor=event.anchor or "",
            properties=" ".join(properties),
            braces=bool(event.flow_style),
        )

    def _find_comments(self) -> Iterator[Comment]:
        """Yields the comments: whatever begins with # between scalars."""
        at = 0
        for start, end in [*self._spans, (len(self.text), len(self.text))]:
            for comment in _COMMENT.finditer(self.text, at, max(at, start)):
                offset = comment.start()
                own_line = not self.text[self._lines[self._line(offset)] : offset].strip()
                # A text with an unusual line end in it, such as U+2028, is printed on one line.
                printed_from = self.text.rfind("\n", 0, offset) + 1
                yield Comment(
                    offset,
                    self.column(offset) if own_line else offset - printed_from,
                    comment[0].rstrip(),
                    own_line,
                    own_line and self._blank_before(offset),
                )
            at = max(at, end)

    def _place_entries(self, node: TextNode) -> None:
        for entry in node.entries:
            first = entry.key or entry.value
            start = first.start
            if not node.braces:
                sign = start - 1
                while sign > 0 and self._without_comments[sign].isspace():
                    sign -= 1
                if node.kind is NodeKind.LIST or (sign >= 0 and self._without_comments[sign] == "?"):
                    start = sign
            entry.start, entry.column = start, self.column(start)
            entry.blank_before = self._blank_before(start)
            self._place_entries(entry.value)

    def _attach_comments(self) -> None:
        for document in self.documents:
            self._set_inline(document)
        entries = sorted(
            (entry for document in self.documents for entry in _entries(document)),
            key=lambda entry: entry.start,
        )
        starts = [entry.start for entry in entries]
        for comment in self.comments if self.documents else ():
            at = bisect_right(starts, comment.start)
            before = entries[at - 1] if at else None
            after = entries[at] if at < len(entries) else None
            self._attach(comment, before, after)

    def _set_inline(self, node: TextNode) -> None:
        following = bisect_right(self.comments, node.start, key=lambda comment: comment.start)
        comment = self.comments[following].start if following < len(self.comments) else len(self.text)
        node.inline = node.braces and node.end < comment
        for entry in node.entries:
            self._set_inline(entry.value)

    def _attach(self, comment: Comment, before: Entry | None, after: Entry | None) -> None:
        if before is None and after is None:
            roots = self.documents
            root = next((root for root in roots if root.start >= comment.start), roots[-1])
            root.foot.append(comment)
        elif before is None:
            assert after is not None
            after.above.append(comment)
        elif not comment.own_line:
            before.behind.append(comment)
        elif not before.value.text and before.value.is_scalar and comment.column > before.column:
            before.inside.append(comment)
        else:
            kept = set(map(id, _around(after)))
            ended = [node for node in _around(before) if id(node) not in kept]
            fitting = [node for node in ended if node.entries[0].column <= comment.column] or ended[-1:]
            if after is not None and (not ended or comment.column <= after.column):
                after.above.append(comment)
            else:
                fitting[0].foot.append(comment)


def _entries(node: TextNode) -> Iterator[Entry]:
    """Yields the entries that get lines of their own."""
    if not node.inline:
        for entry in node.entries:
            yield entry
            yield from _entries(entry.value)


def _around(entry: Entry | None) -> Iterator[TextNode]:
    """Yields the collections around an entry, from the inside."""
    while entry is not None:
        yield entry.collection
        entry = entry.collection.owner
