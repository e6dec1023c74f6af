"""Reads files of other tools, and keeps track of the keys that nothing was made of.

    fields = Fields.of(node, "cluster.yaml", notes)
    fields.text("name"), fields.below("spec").number("partitions")
    fields.explain(rows)    # a note on every other key

A key is never dropped silently. The value of a key without a counterpart is not shown: it may be a secret.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, count

from planner.config.yaml_tree import MAX_DEPTH, ListNode, MapNode, Node, ScalarNode, documents
from planner.model.diagnostic import Diagnostic, Failure, SourceLocation, error, note, warning
from planner.model.topology import Topology
from runtime.contract.client.stores import Setting
from runtime.contract.predecessor import ConnectOffsets

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"(\s*:)?')
_MAX_TEXT = 32 << 20
_MAX_NODES = 2_000_000  # a state with 10,000 topics has some 300,000


@dataclass(frozen=True, slots=True)
class ConvertedTopology:
    """A topology, and a note on each key of the files that has no counterpart or needs a remark.

    A note is a warning if the key has an effect that repl does not have. Its address is the key.
    `positions`: where MirrorMaker 2 keeps those of each flow.
    """

    topology: Topology
    notes: tuple[Diagnostic, ...]
    positions: dict[str, ConnectOffsets] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NoCounterpart:
    """A row of an importer's table: keys that become no key of ours, and the sentence that says why.

    `keys` is a regex of whole keys, of which the first row counts. `loss` is set if they have an effect that
    repl does not have. `without_effect` is a regex of values that ask for what repl does anyway, in any case
    of letters: of these there is no note. `{class}` in the reason is the class that the value names.
    """

    keys: str
    reason: str
    loss: bool = False
    without_effect: str | None = None

    def reason_for(self, value: str) -> str | None:
        """Returns why a key with this value becomes none of ours; None where it needs no note."""
        if self.without_effect is not None and re.fullmatch(self.without_effect, value, re.IGNORECASE):
            return None
        return self.reason.replace("{class}", value.rpartition(".")[2])


_NO_ROW = NoCounterpart(".*", "it has no counterpart", loss=True)


_NOWHERE = SourceLocation("", 0, 0)


def in_order(notes: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Returns notes by file, line and key, each once."""
    order = sorted(notes, key=lambda note: (note.source or _NOWHERE, note.address or ""))
    return tuple(dict.fromkeys(order))


def unused(names: list[str], is_taken: Callable[[str], bool]) -> str:
    """Returns the first of these names that is not taken; where all are, the last one with a number."""
    numbered = (f"{names[-1]}-{number}" for number in count(2))
    return next(name for name in chain(names, numbered) if not is_taken(name))


def literal(name: str) -> str:
    """Returns the regex for exactly this name."""
    return re.sub(r"([^\w-])", r"\\\1", name)


def trees(text: str, file: str, what: str) -> list[Node]:
    """Returns the documents of a file. Failure: it is neither YAML nor JSON, or too large."""
    if len(text) > _MAX_TEXT:
        raise Failure(error(f"{file} has more than {_MAX_TEXT >> 20} MiB", f"name {what}"))
    if text.lstrip()[:1] in ("{", "["):
        return [json_tree(text, file, f"name {what}")]
    read, problems = documents(text, file)
    if problems:
        raise Failure(problems)
    return read


def json_tree(text: str, file: str, hint: str) -> Node:
    """Returns the JSON with the line of each key. Failure: it is none."""
    try:
        raw = json.loads(text, object_pairs_hook=tuple)
    except json.JSONDecodeError as wrong:
        place = SourceLocation(file, wrong.lineno, wrong.colno)
        raise Failure(error(f"{file} is no JSON: {wrong.msg}", hint, source=place)) from None
    except RecursionError:
        raise Failure(error(f"{file} is nested too deeply", hint)) from None
    except ValueError as wrong:  # a number of thousands of digits
        raise Failure(error(f"{file} can't be read: {wrong}", hint)) from None
    return _JsonNodes(file, _key_lines(text)).node(raw, SourceLocation(file, 1, 1), 0)


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

    def node(self, raw: object, place: SourceLocation, depth: int) -> Node:
        self._left -= 1
        if depth > 2 * MAX_DEPTH or self._left < 0:
            what = "is nested too deeply" if self._left >= 0 else f"holds more than {_MAX_NODES:,} values"
            raise Failure(error(f"{self._file} {what}", "name another file"))
        match raw:
            case tuple():
                pairs = []
                for key, value in raw:
                    at = SourceLocation(self._file, next(self._lines, place.line), 1)
                    self._check(key, at)
                    pairs.append((ScalarNode(key, False, at), self.node(value, at, depth + 1)))
                return MapNode(tuple(pairs), place)
            case list():
                return ListNode(tuple(self.node(item, place, depth + 1) for item in raw), place)
            case str():
                self._check(raw, place)
                return ScalarNode(raw, False, place)
            case _:
                return ScalarNode(json.dumps(raw), True, place)

    def _check(self, text: str, place: SourceLocation) -> None:
        """Failure: half of a surrogate pair, which could not be written."""
        if any("\ud800" <= sign <= "\udfff" for sign in text):
            what = f"{self._file} has half of a surrogate pair in a text"
            raise Failure(error(what, "write whole characters", source=place))


def whole_number(text: str) -> int | None:
    """Returns a number of at most nine digits, which no setting exceeds; None for any other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


@dataclass(slots=True)
class Fields:
    """A map of a file, and which of its keys are converted. `path` is its place in the file, for notes."""

    values: dict[str, Node]
    file: str
    line: int
    notes: list[Diagnostic]
    path: str = ""
    used: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, node: Node | None, file: str, notes: list[Diagnostic], path: str = "") -> "Fields":
        """Returns the fields of a node; none for what is no map."""
        pairs = node.pairs if isinstance(node, MapNode) else ()
        values = {key.text: value for key, value in pairs}
        return cls(values, file, node.source.line if node is not None else 1, notes, path)

    def __bool__(self) -> bool:
        return bool(self.values)

    def names(self, *keys: str) -> list[str]:
        """Returns the names in the file of those keys that it has."""
        return [key for key in keys if key in self.values]

    def node(self, *keys: str) -> Node | None:
        """Returns the first of these keys that is set and not null, and marks all of them as converted."""
        names = self.names(*keys)
        self.used.update(names)
        return next((node for name in names if not _null(node := self.values[name])), None)

    def text(self, *names: str) -> str | None:
        node = self.node(*names)
        return node.text if isinstance(node, ScalarNode) else None

    def flag(self, default: bool, *names: str) -> bool:
        text = self.text(*names)
        return default if text is None else text.lower() == "true"

    def number(self, *names: str) -> int | None:
        """Returns a positive number. None where there is none, or -1: the cluster's default."""
        text = self.text(*names)
        if text is None or text in ("-1", "0"):
            return None
        number = whole_number(text)
        if number is None:
            self.note(names[0], "it is no number")
        return number

    def texts(self, *names: str) -> tuple[str, ...]:
        """Returns the texts of a list, or a single text."""
        match self.node(*names):
            case ListNode(items=items):
                return tuple(item.text for item in items if isinstance(item, ScalarNode))
            case ScalarNode(text=text):
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
                case ScalarNode() if not node.is_null:
                    settings[name] = node.text
                case ListNode():
                    settings[name] = ",".join(fields.texts(name))
                case MapNode():
                    fields.note(name, "it is a map, and no value of a setting: it is left out")
        return settings

    def paths(self, keys: Mapping[str, str]) -> dict[str, Setting]:
        """Returns settings that are paths, by their names here. Each gets a note on where it starts."""
        settings: dict[str, Setting] = {}
        for key, ours in keys.items():
            if path := self.text(key):
                settings[ours] = path
                self.note(key, f"a path is relative to the topology's folder: look at {ours}", loss=False)
        return settings

    def below(self, *names: str) -> "Fields":
        """Returns the fields of a map, or of the only map of a list."""
        node = self.node(*names)
        if isinstance(node, ListNode) and len(node.items) == 1:
            node = node.items[0]
        return Fields.of(node, self.file, self.notes, self._path(names[0]))

    def each(self, *names: str) -> list["Fields"]:
        """Returns the fields of every map of a list."""
        match self.node(*names):
            case ListNode(items=items):
                path = self._path(names[0])
                return [
                    Fields.of(item, self.file, self.notes, f"{path}[{number}]")
                    for number, item in enumerate(items)
                ]
            case MapNode() as node:
                return [Fields.of(node, self.file, self.notes, self._path(names[0]))]
            case _:
                return []

    def line_of(self, key: str) -> int:
        return self.values[key].source.line if key in self.values else self.line

    def failure(self, what: str, hint: str, key: str = "") -> Failure:
        """Returns an error at the place of this map, or of a key of it."""
        return Failure(error(what, hint, source=SourceLocation(self.file, self.line_of(key), 1)))

    def note(self, keys: str | tuple[str, ...], reason: str, *, loss: bool = True) -> None:
        """Adds a note on the first of these keys that the map has."""
        keys = (keys,) if isinstance(keys, str) else keys
        name = next(iter(self.names(*keys)), keys[0])
        self.used.add(name)
        self.note_at(self.line_of(name), self._path(name), reason, loss=loss)

    def note_at(self, line: int, key: str, reason: str, *, loss: bool = True) -> None:
        """Adds a note at a line of the file."""
        build = warning if loss else note
        self.notes.append(build(reason, address=key, source=SourceLocation(self.file, line, 1)))

    def rest(self) -> list[str]:
        """Returns the names that are not converted, without those that have no value."""
        return [name for name, node in self.values.items() if name not in self.used and not _empty(node)]

    def explain(self, rows: Iterable[NoCounterpart] = ()) -> None:
        """Adds a note on every key that is not converted."""
        for name in self.rest():
            self.explain_key(name, name, rows)

    def explain_key(self, name: str, key: str, rows: Iterable[NoCounterpart]) -> None:
        """Adds the note of the first row for a key, which the file has under this name."""
        node = self.values[name]
        value = node.text if isinstance(node, ScalarNode) else ""
        row = next((row for row in rows if re.fullmatch(row.keys, key)), _NO_ROW)
        if (reason := row.reason_for(value)) is not None:
            self.note(name, reason, loss=row.loss)

    def _path(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name


def _null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.is_null


def _empty(node: Node) -> bool:
    match node:
        case ListNode(items=parts) | MapNode(pairs=parts):
            return not parts
        case _:
            return _null(node)
