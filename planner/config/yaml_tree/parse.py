"""Parses YAML text into trees of nodes with their places, within limits that stop YAML bombs early.

The events of the C parser are handled with an explicit stack. So depth costs no recursion, and every limit
holds while the text is still being read.
"""

from dataclasses import dataclass, field
from typing import Any

import yaml

from planner.config.yaml_tree.nodes import Mapping, Node, Scalar, Sequence
from planner.config.yaml_tree.syntax import UNQUOTED_EXPRESSION, explain
from planner.model.diagnostic import Diagnostic, Failure, SourceLocation, error

MAX_NODES = 500_000  # with aliases expanded: 10,000 topics need a third of it
MAX_DEPTH = 50

Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TEXT_TAGS = frozenset({"!", "tag:yaml.org,2002:str"})


@dataclass(slots=True)
class _Open:
    """A collection whose end was not read yet."""

    is_mapping: bool
    flow: bool
    anchor: str | None
    line: int
    column: int
    before: int  # nodes counted before it began
    items: list[Node] = field(default_factory=list)


def documents(text: str, file: str) -> tuple[list[Node], list[Diagnostic]]:
    """Returns the documents of one file and the mistakes that do not stop reading. Others raise a Failure."""
    builder = _Builder(file)
    parser = Parser(text)
    try:
        while True:
            event = parser.get_event()
            kind = type(event)
            if kind is yaml.ScalarEvent:
                builder.scalar(event)
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                builder.start(event, kind is yaml.MappingStartEvent)
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                builder.end()
            elif kind is yaml.AliasEvent:
                builder.alias(event)
            elif kind is yaml.DocumentEndEvent:
                builder.anchors.clear()
            elif kind is yaml.StreamEndEvent:
                return builder.done, builder.diagnostics
    except yaml.YAMLError as wrong:
        raise Failure([*builder.diagnostics, explain(wrong, text, file)]) from None
    finally:
        parser.dispose()


class _Builder:
    def __init__(self, file: str) -> None:
        self.file = file
        self.done: list[Node] = []
        self.diagnostics: list[Diagnostic] = []
        self.anchors: dict[str, tuple[Node, int] | None] = {}
        self.stack: list[_Open] = []
        self.count = 0

    def scalar(self, event: Any) -> None:
        mark = event.start_mark
        plain = not event.style
        if event.tag is not None and (event.tag in TEXT_TAGS or not self._refuse_tag(event)):
            plain = False
        node = Scalar(event.value, plain, self.file, mark.line + 1, mark.column + 1)
        self._count(1, mark)
        if event.anchor:
            self.anchors[event.anchor] = (node, 1)
        self._add(node)

    def start(self, event: Any, is_mapping: bool) -> None:
        mark = event.start_mark
        if event.tag is not None and not event.tag.startswith("tag:yaml.org,2002:"):
            self._refuse_tag(event)
        if event.anchor:
            self.anchors[event.anchor] = None
        before = self.count
        self._count(1, mark)
        if len(self.stack) >= MAX_DEPTH:
            raise Failure(
                error(
                    f"nested deeper than {MAX_DEPTH} levels",
                    "nothing in a topology is that deep: look for brackets that are never closed",
                    source=self._at(mark),
                )
            )
        self.stack.append(
            _Open(is_mapping, bool(event.flow_style), event.anchor, mark.line + 1, mark.column + 1, before)
        )

    def end(self) -> None:
        closed = self.stack.pop()
        node: Node
        if closed.is_mapping:
            node = self._mapping(closed)
        else:
            node = Sequence(tuple(closed.items), self.file, closed.line, closed.column)
        if closed.anchor:
            self.anchors[closed.anchor] = (node, self.count - closed.before)
        self._add(node)

    def alias(self, event: Any) -> None:
        if event.anchor not in self.anchors:
            what = f'no anchor "&{event.anchor}" stands before this alias'
            raise Failure(
                error(
                    what,
                    'name one that does, or quote text that begins with "*"',
                    source=self._at(event.start_mark),
                )
            )
        known = self.anchors[event.anchor]
        if known is None:
            what = f'the alias "*{event.anchor}" stands inside its own anchor'
            raise Failure(error(what, "a topology can't contain itself", source=self._at(event.start_mark)))
        node, weight = known
        self._count(weight, event.start_mark)
        self._add(node)

    def _add(self, node: Node) -> None:
        (self.stack[-1].items if self.stack else self.done).append(node)

    def _at(self, mark: Any) -> SourceLocation:
        return SourceLocation(self.file, mark.line + 1, mark.column + 1)

    def _count(self, nodes: int, mark: Any) -> None:
        self.count += nodes
        if self.count > MAX_NODES:
            raise Failure(
                error(
                    f"more than {MAX_NODES:,} values, aliases expanded",
                    "use fewer aliases, or split the topology",
                    source=self._at(mark),
                )
            )

    def _refuse_tag(self, event: Any) -> bool:
        self.diagnostics.append(
            error(
                f'the tag "{event.tag}" is not read here', "leave it out", source=self._at(event.start_mark)
            )
        )
        return True

    def _mapping(self, closed: _Open) -> Node:
        first = closed.items[0] if closed.items else None
        inside = isinstance(first, Mapping) and (first.line, first.column) == (closed.line, closed.column + 1)
        if not (closed.flow and inside):
            return Mapping(self._pairs(closed), self.file, closed.line, closed.column)
        place = SourceLocation(self.file, closed.line, closed.column)
        self.diagnostics.append(error(*UNQUOTED_EXPRESSION, source=place, code="syntax"))
        return Scalar("", True, self.file, closed.line, closed.column, failed=True)

    def _pairs(self, closed: _Open) -> tuple[tuple[Scalar, Node], ...]:
        pairs: dict[str, tuple[Scalar, Node]] = {}
        merges: list[Node] = []
        for key, value in zip(closed.items[::2], closed.items[1::2], strict=True):
            if not isinstance(key, Scalar):
                what = "a key is text here, not a list or a map"
                self.diagnostics.append(error(what, "write the key as one word", source=key.source))
            elif key.text == "<<" and key.plain:
                merges.append(value)
            elif key.text in pairs:
                first = pairs[key.text][0]
                place = f"line {first.line}, column {first.column}"
                what = f'the key "{key.text}" stands here twice: first at {place}'
                self.diagnostics.append(error(what, "keep one of the two", source=key.source))
            else:
                pairs[key.text] = (key, value)
        for merged in self._merged(merges):
            for key, value in merged.pairs:
                pairs.setdefault(key.text, (key, value))
        return tuple(pairs.values())

    def _merged(self, values: list[Node]) -> list[Mapping]:
        """Returns the maps behind `<<`. The earlier one wins; a key that is written out wins over them."""
        found: list[Mapping] = []
        for value in values:
            for one in value.items if isinstance(value, Sequence) else (value,):
                if isinstance(one, Mapping):
                    self.count += len(one.pairs)
                    found.append(one)
                else:
                    what = '"<<" merges a map, or a list of maps'
                    self.diagnostics.append(error(what, "give it an alias of a map", source=one.source))
        return found
