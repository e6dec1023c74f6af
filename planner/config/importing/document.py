"""Reads YAML and JSON of other tools, and keeps track of the keys that nothing was made of.

    fields = Fields.of(node, "cluster.yaml", notes)
    fields.text("name"), fields.below("spec").number("partitions")
    fields.explain(rows)    # a note on every other key

A key is never dropped silently. The value of a key without a counterpart is not shown: it may be a secret.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from planner.config.importing.connect import ConversionNote, NoCounterpart
from planner.config.yaml_tree import MAX_DEPTH, Mapping, Node, Scalar, Sequence, documents
from planner.model.diagnostic import Failure, SourceLocation, error

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"(\s*:)?')
_MAX_TEXT = 32 << 20
_MAX_NODES = 2_000_000  # a state with 10,000 topics has some 300,000
_NO_ROW = NoCounterpart(".*", "it has no counterpart", loss=True)


def trees(text: str, file: str, what: str) -> list[Node]:
    """Returns the documents of a file. Failure: it is neither YAML nor JSON, or too large."""
    if len(text) > _MAX_TEXT:
        raise Failure(error(f"{file} has more than {_MAX_TEXT >> 20} MiB", f"name {what}"))
    if text.lstrip()[:1] in ("{", "["):
        raw, lines = json_with_lines(text, file, f"name {what}")
        return [_JsonNodes(file, lines).node(raw, 1, 0)]
    read, problems = documents(text, file)
    if problems:
        raise Failure(problems)
    return read


def json_with_lines(text: str, file: str, hint: str) -> tuple[object, Iterator[int]]:
    """Returns the JSON, an object of it as pairs, and the line of each key in the order of the file."""
    try:
        raw = json.loads(text, object_pairs_hook=tuple)
    except json.JSONDecodeError as wrong:
        place = SourceLocation(file, wrong.lineno, wrong.colno)
        raise Failure(error(f"{file} is no JSON: {wrong.msg}", hint, source=place)) from None
    except RecursionError:
        raise Failure(error(f"{file} is nested too deeply", hint)) from None
    except ValueError as wrong:  # a number of thousands of digits
        raise Failure(error(f"{file} can't be read: {wrong}", hint)) from None
    return raw, _key_lines(text)


def _key_lines(text: str) -> Iterator[int]:
    """Yields the line of each key, in the order of the file."""
    line, seen = 1, 0
    for string in _STRING.finditer(text):
        if string[1] is not None:
            line += text.count("\n", seen, string.start())
            seen = string.start()
            yield line


class _JsonNodes:
    """Makes nodes of JSON, within limits. An element of a list has the line of the key before it."""

    def __init__(self, file: str, lines: Iterator[int]) -> None:
        self._file, self._lines = file, lines
        self._left = _MAX_NODES

    def node(self, raw: object, line: int, depth: int) -> Node:
        self._left -= 1
        if depth > 2 * MAX_DEPTH or self._left < 0:
            what = "is nested too deeply" if self._left >= 0 else f"holds more than {_MAX_NODES:,} values"
            raise Failure(error(f"{self._file} {what}", "name another file"))
        file = self._file
        match raw:
            case tuple():
                pairs = []
                for key, value in raw:
                    at = next(self._lines, line)
                    self._check(key, at)
                    pairs.append((Scalar(key, False, file, at, 1), self.node(value, at, depth + 1)))
                return Mapping(tuple(pairs), file, line, 1)
            case list():
                return Sequence(tuple(self.node(item, line, depth + 1) for item in raw), file, line, 1)
            case str():
                self._check(raw, line)
                return Scalar(raw, False, file, line, 1)
            case _:
                return Scalar(json.dumps(raw), True, file, line, 1)

    def _check(self, text: str, line: int) -> None:
        """Failure: half of a surrogate pair, which could not be written."""
        if any("\ud800" <= sign <= "\udfff" for sign in text):
            what = f"{self._file} has half of a surrogate pair in a text"
            place = SourceLocation(self._file, line, 1)
            raise Failure(error(what, "write whole characters", source=place))


@dataclass(slots=True)
class Fields:
    """A map of a file, and which of its keys are converted. `path` is its place in the file, for notes."""

    values: dict[str, Node]
    file: str
    line: int
    notes: list[ConversionNote]
    path: str = ""
    used: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, node: Node | None, file: str, notes: list[ConversionNote], path: str = "") -> "Fields":
        """Returns the fields of a node; none for what is no map."""
        pairs = node.pairs if isinstance(node, Mapping) else ()
        values = {key.text: value for key, value in pairs}
        return cls(values, file, node.line if node is not None else 1, notes, path)

    def __bool__(self) -> bool:
        return bool(self.values)

    def node(self, *names: str) -> Node | None:
        """Returns the first of these keys that is set and not null, and marks all of them as converted."""
        self.used.update(names)
        nodes = (self.values.get(name) for name in names)
        return next((node for node in nodes if node is not None and not _null(node)), None)

    def text(self, *names: str) -> str | None:
        node = self.node(*names)
        return node.text if isinstance(node, Scalar) else None

    def flag(self, default: bool, *names: str) -> bool:
        text = self.text(*names)
        return default if text is None else text.lower() == "true"

    def number(self, *names: str) -> int | None:
        """Returns a positive number. None where there is none, or -1: the cluster's default."""
        text = self.text(*names)
        if text is None or text in ("-1", "0"):
            return None
        if text.isascii() and text.isdecimal() and len(text) < 10:
            return int(text)
        self.note(names[0], "it is no number")
        return None

    def texts(self, *names: str) -> tuple[str, ...]:
        """Returns the texts of a list, or a single text."""
        match self.node(*names):
            case Sequence(items=items):
                return tuple(item.text for item in items if isinstance(item, Scalar))
            case Scalar(text=text):
                return (text,)
            case _:
                return ()

    def settings(self, *names: str) -> dict[str, str]:
        """Returns a map of texts; a list in it becomes a text with commas, null is left out.

        A map in it is noted: no setting of Kafka has one.
        """
        fields = self.below(*names)
        settings = {}
        for name, node in fields.values.items():
            match node:
                case Scalar() if not node.is_null:
                    settings[name] = node.text
                case Sequence():
                    settings[name] = ",".join(fields.texts(name))
                case Mapping():
                    fields.note(name, "it is a map, and no value of a setting: it is left out")
        return settings

    def below(self, *names: str) -> "Fields":
        """Returns the fields of a map, or of the only map of a list."""
        node = self.node(*names)
        if isinstance(node, Sequence) and len(node.items) == 1:
            node = node.items[0]
        return Fields.of(node, self.file, self.notes, self._path(names[0]))

    def each(self, *names: str) -> list["Fields"]:
        """Returns the fields of every map of a list."""
        match self.node(*names):
            case Sequence(items=items):
                path = self._path(names[0])
                return [
                    Fields.of(item, self.file, self.notes, f"{path}[{number}]")
                    for number, item in enumerate(items)
                ]
            case Mapping() as node:
                return [Fields.of(node, self.file, self.notes, self._path(names[0]))]
            case _:
                return []

    def note(self, name: str, reason: str, *, loss: bool = True) -> None:
        """Adds a note on a key of this map."""
        self.used.add(name)
        node = self.values.get(name)
        line = node.line if node is not None else self.line
        self.notes.append(ConversionNote(self._path(name), line, reason, loss, self.file))

    def explain(self, rows: Iterable[NoCounterpart] = ()) -> None:
        """Adds a note on every key that is not converted, by the first row for it."""
        for name, node in self.values.items():
            empty = isinstance(node, Sequence | Mapping) and not (
                node.items if isinstance(node, Sequence) else node.pairs
            )
            if name in self.used or empty or _null(node):
                continue
            row = next((row for row in rows if re.fullmatch(row.keys, name)), _NO_ROW)
            value = node.text if isinstance(node, Scalar) else ""
            if row.without_effect is None or not re.fullmatch(row.without_effect, value, re.IGNORECASE):
                self.note(name, row.reason, loss=row.loss)

    def _path(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name


def _null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.is_null
