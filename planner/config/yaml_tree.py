"""Parses YAML text into trees of nodes with their places, within limits that stop YAML bombs early.

Nothing is interpreted here: no schema, no default, no variable. A scalar keeps the text that the user wrote.
Its key decides what it means, so `off` never becomes a boolean by itself, `010` never eight, and no text a
date, as YAML 1.1 would have it. The events of the C parser are handled with an explicit stack. So depth costs
no recursion, and every limit holds while the text is still being read. Errors of the scanner are explained in
plain words, without the line: it may hold a secret.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import yaml
from msgspec import Struct
from msgspec.structs import replace

from planner.model.diagnostic import Diagnostic, Failure, SourceLocation, error

NULLS = frozenset({"", "~", "null", "Null", "NULL"})


class ScalarNode(Struct, frozen=True):
    """A scalar. `plain` means unquoted, or the result of an expression.

    `written` is the expression it came from. `failed` means that the expression has no value, which is
    reported already.
    """

    text: str
    plain: bool
    source: SourceLocation
    written: str | None = None
    failed: bool = False

    @property
    def is_null(self) -> bool:
        return self.plain and self.text in NULLS


class ListNode(Struct, frozen=True):
    items: tuple["Node", ...]
    source: SourceLocation


class MapNode(Struct, frozen=True):
    """A map: pairs in the order of the file, with unique keys and merges (`<<`) done."""

    pairs: tuple[tuple[ScalarNode, "Node"], ...]
    source: SourceLocation

    def get(self, name: str) -> "Node | None":
        return next((value for key, value in self.pairs if key.text == name), None)


Node = ScalarNode | ListNode | MapNode


def kind_of(node: Node) -> str:
    """Returns the kind of a node for an error, without its content."""
    match node:
        case ScalarNode():
            return "nothing" if node.is_null else "text"
        case ListNode():
            return "a list"
        case MapNode():
            return "a map"


MAX_DEPTH = 50
TOO_DEEP = (
    f"nested deeper than {MAX_DEPTH} levels",
    "nothing in a topology is that deep: look for brackets that are never closed, and for aliases in anchors",
)
# A part of the scanner's message, what is wrong, and how to correct it.
SENTENCES: tuple[tuple[str, str, str], ...] = (
    (
        "mapping values are not allowed",
        'a ": " stands where no value can begin',
        'give keys of one map the same indent, and quote a value that contains ": "',
    ),
    (
        "did not find expected key",
        "this line fits none of the maps above it",
        "give keys of one map the same indent",
    ),
    (
        "did not find expected '-' indicator",
        "this line fits none of the lists above it",
        'begin each entry with "- ", all at the same indent',
    ),
    ("could not find expected ':'", 'a key without ":"', 'write "key: value", or close the quote before it'),
    ("did not find expected ',' or ']'", "a list in brackets that is not closed", 'add "," or "]"'),
    ("did not find expected ',' or '}'", "a map in braces that is not closed", 'add "," or "}"'),
    ("found unexpected end of stream", "a quoted text that never ends", "close the quote"),
    ("found unexpected document indicator", "a quoted text that never ends", "close the quote"),
    (
        "found unknown escape character",
        "a backslash in double quotes begins an escape, and this is none",
        "write it twice (\"\\\\.\"), or use single quotes ('\\.')",
    ),
    (
        "did not find expected hexdecimal number",
        "an escape without its hexadecimal digits",
        "write the backslash twice, or use single quotes",
    ),
    (
        "block sequence entries are not allowed",
        'a "- " that no list can have here',
        "put it on a line of its own",
    ),
    ("block mapping", "a map that this place can't hold", "put it on lines of its own, indented"),
    ("incompatible YAML document", "another version of YAML", "leave the %YAML line out"),
    ("found undefined tag handle", "a tag (!) that is not read here", "quote a text that begins with !"),
    (
        "did not find expected alphabetic or numeric character",
        "an alias or an anchor without a name",
        'quote a text that begins with "*" or "&"',
    ),
    (
        "did not find expected <document start>",
        "text behind the end of the document",
        "give keys of one map the same indent",
    ),
    (
        "did not find expected node content",
        "a value that is missing or begins with a sign YAML keeps for itself",
        "quote it",
    ),
    (
        "did not find expected comment or line break",
        'more text behind the "|" or ">" that begins a text of several lines',
        "go on in the next line, indented, or quote the value",
    ),
    ("found unexpected ':'", 'a ":" that no value can hold here', "quote the value"),
    ("mapping keys are not allowed", 'a "? " that no key can begin with here', "quote it"),
    (
        "could not find expected directive name",
        'a "%" at the beginning of a line',
        "quote it, or leave it out",
    ),
    ("maximum nesting depth", *TOO_DEEP),  # libyaml's own limit, where a file opens 1,000 brackets at once
    ("control characters are not allowed", "a control character", "remove it"),
    ("special characters are not allowed", "a control character", "remove it"),
)
# The scanner notices these far below the mistake: the place to show is where the text or bracket opens.
SHOWN_AT_THE_OPENING = (
    "unexpected end of stream",
    "unexpected document indicator",
    "',' or ']'",
    "',' or '}'",
)
UNQUOTED_EXPRESSION = (
    "an expression that is not quoted is a map to YAML",
    'quote the whole value: "{{ … }}"',
)
TAB = ("a tab in the indent", "indent by spaces")


def explain(wrong: Any, text: str, file: str) -> Diagnostic:
    """Returns a YAMLError as a diagnostic at its place."""
    problem = str(getattr(wrong, "problem", None) or getattr(wrong, "reason", None) or "not YAML")
    marks = [getattr(wrong, "problem_mark", None), getattr(wrong, "context_mark", None)]
    if any(part in problem for part in SHOWN_AT_THE_OPENING):
        marks.reverse()
    mark = marks[0] or marks[1]
    if mark is None:
        line, column = place_of(text, getattr(wrong, "position", 0) or 0)
    else:
        line, column = mark.line + 1, mark.column + 1
    what, hint = _words(problem, _line(text, line), column)
    if what == UNQUOTED_EXPRESSION[0]:
        column = _line(text, line).index("{{") + 1
    return error(what, hint, source=SourceLocation(file, line, column), code="syntax")


def _words(problem: str, line: str, column: int) -> tuple[str, str]:
    indent = line[: len(line) - len(line.lstrip())]
    if "\t" in indent or line[column - 1 : column] == "\t":
        return TAB
    before, opened, _ = line.partition("{{")
    if opened and not before.rstrip().endswith(("'", '"')) and before.count('"') % 2 == 0:
        return UNQUOTED_EXPRESSION
    if "cannot start any token" in problem:
        sign = line[column - 1 : column]
        return f'a value can\'t begin with "{sign}"', "quote it"
    for part, what, hint in SENTENCES:
        if part in problem:
            return what, hint
    return f"not YAML: {problem}", "correct the line, or quote the value"


def _line(text: str, number: int) -> str:
    lines = text.split("\n", number)
    return lines[number - 1] if number <= len(lines) else ""


def place_of(text: str, position: int) -> tuple[int, int]:
    """Returns line and column, both from 1, of a position in a text."""
    line = text.count("\n", 0, position) + 1
    return line, position - (text.rfind("\n", 0, position) + 1) + 1


MAX_NODES = 500_000  # with aliases expanded: 10,000 topics need a third of it

Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TEXT_TAGS = frozenset({"!", "tag:yaml.org,2002:str"})


class _Open(Struct):
    """A collection whose end was not read yet."""

    is_mapping: bool
    flow: bool
    anchor: str | None
    source: SourceLocation
    before: int  # nodes counted before it began
    items: list[Node] = []
    height: int = 1  # levels of collections in it, itself among them and aliases expanded


@contextmanager
def parsing(text: str, file: str) -> Iterator[Callable[[], Any]]:
    """Gives the function that returns the next event of the parser. Failure: the text is no YAML."""
    parser = Parser(text)
    try:
        yield parser.get_event
    except yaml.YAMLError as wrong:
        raise Failure(explain(wrong, text, file)) from None
    finally:
        parser.dispose()


def start_of(event: Any, file: str) -> SourceLocation:
    """Returns the place where the text of an event begins."""
    mark = event.start_mark
    return SourceLocation(file, mark.line + 1, mark.column + 1)


def refuse_deeper(depth: int, event: Any, file: str) -> None:
    """Raises a Failure if there are more than MAX_DEPTH levels of collections."""
    if depth > MAX_DEPTH:
        raise Failure(error(*TOO_DEEP, source=start_of(event, file)))


def documents(text: str, file: str) -> tuple[list[Node], list[Diagnostic]]:
    """Returns the documents of one file and the mistakes that do not stop reading. Others raise a Failure."""
    builder = _Builder(file)
    try:
        with parsing(text, file) as next_event:
            while (kind := type(event := next_event())) is not yaml.StreamEndEvent:
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
    except Failure as failure:
        raise Failure([*builder.diagnostics, *failure.diagnostics]) from None
    return builder.done, builder.diagnostics


class _Builder:
    def __init__(self, file: str) -> None:
        self.file = file
        self.done: list[Node] = []
        self.diagnostics: list[Diagnostic] = []
        # Each anchored node, how many nodes it is, and how many levels of collections it has.
        self.anchors: dict[str, tuple[Node, int, int] | None] = {}
        self.stack: list[_Open] = []
        self.count = 0

    def scalar(self, event: Any) -> None:
        if event.tag is not None and event.tag not in TEXT_TAGS:
            self._refuse_tag(event)
        plain = not event.style and event.tag not in TEXT_TAGS
        node = ScalarNode(event.value, plain, start_of(event, self.file))
        self._count(1, node.source)
        if event.anchor:
            self.anchors[event.anchor] = (node, 1, 0)
        self._add(node, 0)

    def start(self, event: Any, is_mapping: bool) -> None:
        if event.tag is not None and not event.tag.startswith("tag:yaml.org,2002:"):
            self._refuse_tag(event)
        if event.anchor:
            self.anchors[event.anchor] = None
        source, before = start_of(event, self.file), self.count
        self._count(1, source)
        refuse_deeper(len(self.stack) + 1, event, self.file)
        self.stack.append(_Open(is_mapping, bool(event.flow_style), event.anchor, source, before))

    def end(self) -> None:
        closed = self.stack.pop()
        node = self._mapping(closed) if closed.is_mapping else ListNode(tuple(closed.items), closed.source)
        if closed.anchor:
            self.anchors[closed.anchor] = (node, self.count - closed.before, closed.height)
        self._add(node, closed.height)

    def alias(self, event: Any) -> None:
        source = start_of(event, self.file)
        if event.anchor not in self.anchors:
            what = f'no anchor "&{event.anchor}" stands before this alias'
            hint = 'name one that does, or quote text that begins with "*"'
            raise Failure(error(what, hint, source=source))
        anchored = self.anchors[event.anchor]
        if anchored is None:
            what = f'the alias "*{event.anchor}" stands inside its own anchor'
            raise Failure(error(what, "a topology can't contain itself", source=source))
        node, weight, height = anchored
        self._count(weight, source)
        refuse_deeper(len(self.stack) + height, event, self.file)
        self._add(node, height)

    def _add(self, node: Node, height: int) -> None:
        if not self.stack:
            self.done.append(node)
            return
        self.stack[-1].items.append(node)
        self.stack[-1].height = max(self.stack[-1].height, height + 1)

    def _count(self, nodes: int, source: SourceLocation) -> None:
        self.count += nodes
        if self.count > MAX_NODES:
            what = f"more than {MAX_NODES:,} values, aliases expanded"
            raise Failure(error(what, "use fewer aliases, or split the topology", source=source))

    def _refuse_tag(self, event: Any) -> None:
        what = f'the tag "{event.tag}" is not read here'
        self.diagnostics.append(error(what, "leave it out", source=start_of(event, self.file)))

    def _mapping(self, closed: _Open) -> Node:
        first, source = closed.items[0] if closed.items else None, closed.source
        at = first.source if closed.flow and isinstance(first, MapNode) else None
        if at != replace(source, column=source.column + 1):
            return MapNode(self._pairs(closed), source)
        self.diagnostics.append(error(*UNQUOTED_EXPRESSION, source=source, code="syntax"))
        return ScalarNode("", True, source, failed=True)

    def _pairs(self, closed: _Open) -> tuple[tuple[ScalarNode, Node], ...]:
        pairs: dict[str, tuple[ScalarNode, Node]] = {}
        merges: list[Node] = []
        for key, value in zip(closed.items[::2], closed.items[1::2], strict=True):
            if not isinstance(key, ScalarNode):
                what = "a key is text here, not a list or a map"
                self.diagnostics.append(error(what, "write the key as one word", source=key.source))
            elif key.text == "<<" and key.plain:
                merges.append(value)
            elif key.text in pairs:
                first = pairs[key.text][0].source
                place = f"line {first.line}, column {first.column}"
                what = f'the key "{key.text}" stands here twice: first at {place}'
                self.diagnostics.append(error(what, "keep one of the two", source=key.source))
            else:
                pairs[key.text] = (key, value)
        for merged in self._merged(merges):
            for key, value in merged.pairs:
                pairs.setdefault(key.text, (key, value))
        return tuple(pairs.values())

    def _merged(self, values: list[Node]) -> list[MapNode]:
        """Returns the maps behind `<<`. The earlier one wins; a key that is written out wins over them."""
        maps: list[MapNode] = []
        for value in values:
            for item in value.items if isinstance(value, ListNode) else (value,):
                if isinstance(item, MapNode):
                    self.count += len(item.pairs)
                    maps.append(item)
                else:
                    what = '"<<" merges a map, or a list of maps'
                    self.diagnostics.append(error(what, "give it an alias of a map", source=item.source))
        return maps
