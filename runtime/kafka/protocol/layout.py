"""Compiles the fields of a request or response, written as a table, to functions that encode and decode them.

A table has one field on each line, in the order of Kafka's message definitions: its name, its type, the
versions that have it, and its default:

    throttle_ms  int32  1+
    groups       []
      group_id   string
      state      string  4+  = ""
      _members   int32       = 0
    tag 0 leader {}
      node_id    int32

- Types are `bool`, `int8` to `int64`, `float64`, `uuid`, `string`, `bytes`, `error` (an int16 that is read as
  an ErrorCode), `records`, which are never copied, and `rest`: the bytes up to the end. A `?` makes a string
  null instead of empty.
- `[]int32` is an array of values, `[]` one of the indented fields, `[100]` one of at most 100 items, and
  `{}` one structure. A tagged field is None where it is missing.
- `4+`, `-3`, `8-10` and `2` are versions. In other versions a field is read as its default.
- A field whose name begins with `_` is no value: it is written as its default, and skipped when it is read.
- `[] -> Broker` makes an object of each item. `[] repeated` reads an item that equals the item at the same
  place before as the same object, without decoding it.

The value of a structure is the tuple of its values, or the value itself where there is only one. Each version
is compiled when it is used first. A version from `flexible` on has compact lengths and tagged fields.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from runtime.kafka.errors import ErrorCode

T = TypeVar("T")
Row = tuple[Any, ...]
Buffer = bytes | bytearray | memoryview
Encode = Callable[[Any], list[Buffer]]
Decode = Callable[[memoryview, int], tuple[Any, int]]


class Truncated(ValueError):
    """The bytes end before the value does, or hold an impossible value."""


_FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "error": "h",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
_ABSENT = {"string": '""', "bytes": 'b""', "records": "EMPTY", "error": "NO_ERROR", "uuid": "bytes(16)"}
_LINE = re.compile(
    r"(?P<indent> *)(tag (?P<tag>\d+) )?(?P<name>\w+) +"
    r"(?P<array>\[(?P<most>\d*)\])?(?P<kind>\{\}|\w+)?(?P<null>\?)?"
    r"( +(?P<versions>\d+\+|-\d+|\d+-\d+|\d+))?( += (?P<default>.+?))?"
    r"( +-> (?P<into>\w+))?(?P<repeated> +repeated)?"
)
_EMPTY = memoryview(bytearray())


@dataclass(slots=True)
class _Field:
    name: str
    kind: str  # a primitive type, or empty for a structure
    array: bool = False
    most: int | None = None
    nullable: bool = False
    versions: range = range(1 << 15)
    default: str = ""
    tag: int | None = None
    into: str = ""
    repeated: bool = False
    children: list[_Field] = field(default_factory=list)

    @property
    def silent(self) -> bool:
        return self.name.startswith("_")

    @property
    def absent(self) -> str:
        """What is read where a version does not have the field."""
        if self.default or self.array:
            return self.default or "()"
        return "None" if self.nullable or not self.kind else _ABSENT.get(self.kind, "0")

    @property
    def fixed(self) -> str:
        """The field's struct format, or empty if its size varies."""
        return "" if self.array or self.tag is not None else _FORMATS.get(self.kind, "")


def _parse(table: str) -> list[_Field]:
    top: list[_Field] = []
    levels = [(-1, top)]
    for line in filter(str.strip, table.splitlines()):
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"a table of fields has the line {line!r}")
        first, plus, last = re.fullmatch(r"(\d*)([+-]?)(\d*)", match["versions"] or "0+").groups()  # type: ignore[union-attr]
        newest = (1 << 15) if plus == "+" else int(last or first)
        item = _Field(
            match["name"],
            (match["kind"] or "").replace("{}", ""),
            match["array"] is not None,
            int(match["most"]) if match["most"] else None,
            match["null"] is not None,
            range(int(first or 0), newest + 1),
            match["default"] or "",
            int(match["tag"]) if match["tag"] else None,
            match["into"] or "",
            match["repeated"] is not None,
        )
        while levels[-1][0] >= len(match["indent"]):
            levels.pop()
        levels[-1][1].append(item)
        levels.append((len(match["indent"]), item.children))
    return top


class Layout:
    """The fields of one request or response in all versions."""

    def __init__(self, table: str, flexible: int, classes: Sequence[Callable[..., Any]] = ()) -> None:
        self._fields = _parse(table)
        self._flexible = flexible
        names = [item.name for item in self._fields if not item.silent]
        self.throttled_at = names.index("throttle_ms") if "throttle_ms" in names else None
        self._classes = {made.__name__: made for made in classes}
        self._encoders: dict[int, Encode] = {}
        self._decoders: dict[int, Decode] = {}

    def encode(self, version: int, value: Any) -> list[Buffer]:
        """Returns the bytes of a value; record batches stay in the caller's memory."""
        encode = self._encoders.get(version)
        if encode is None:
            encode = self._encoders[version] = self._compile(_Encoder(version, version >= self._flexible))
        return encode(value)

    def decode(self, version: int, buffer: memoryview, position: int = 0) -> tuple[Any, int]:
        """Returns the value, and the position behind it. Raises ValueError for bytes that are none."""
        decode = self._decoders.get(version)
        if decode is None:
            decode = self._decoders[version] = self._compile(_Decoder(version, version >= self._flexible))
        try:
            return decode(buffer, position)
        except (struct.error, IndexError) as error:
            raise Truncated(str(error)) from error

    def _compile(self, compiler: _Encoder | _Decoder) -> Any:
        source = compiler.function(self._fields)
        names: dict[str, Any] = {**_GLOBALS, **self._classes}
        exec(compile(source, f"<fields in version {compiler.version}>", "exec"), names)  # noqa: S102
        return names["function"]


class _Compiler:
    """Writes the lines of a Python function for one version."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self._indent = 1
        self._names = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._indent + text)

    def new(self, name: str) -> str:
        self._names += 1
        return f"{name.strip('_')}_{self._names}"

    @contextmanager
    def indented(self) -> Iterator[None]:
        self._indent += 1
        yield
        self._indent -= 1

    def has(self, item: _Field) -> bool:
        return self.version in item.versions and (item.tag is None or self.flexible)


def _runs(fields: Sequence[_Field]) -> list[list[_Field]]:
    """Groups neighbours of fixed size, which are packed and unpacked in one call."""
    runs: list[list[_Field]] = []
    for item in fields:
        if item.fixed and runs and runs[-1][0].fixed:
            runs[-1].append(item)
        else:
            runs.append([item])
    return runs


def _tuple(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


class _Encoder(_Compiler):
    def function(self, fields: Sequence[_Field]) -> str:
        self.line("out = bytearray()")
        self.line("parts = []")
        self._structure(fields, "value")
        self.line("parts.append(out)")
        self.line("return parts")
        return "\n".join(["def function(value):", *self.lines])

    def _structure(self, fields: Sequence[_Field], value: str) -> None:
        named = [item for item in fields if not item.silent and item.tag is None]
        names = {item.name: self.new(item.name) for item in named}
        if names:
            self.line(f"{_tuple(list(names.values()))} = {value}")
        present = [item for item in fields if self.has(item) and item.tag is None]
        runs = _runs(present)
        for number, run in enumerate(runs):
            values = [names.get(item.name) or item.default or item.absent for item in run]
            if not run[0].fixed:
                if run[0].silent:
                    names[run[0].name] = self.new(run[0].name)
                    self.line(f"{names[run[0].name]} = {values[0]}")
                self._varying(run[0], names[run[0].name])
                continue
            tags = "x" if self.flexible and number == len(runs) - 1 else ""
            packed = struct.Struct(">" + "".join(item.fixed for item in run) + tags)
            self.line(f"out += {_keep(packed.pack)}({', '.join(values)})")
        if self.flexible and not (runs and (runs[-1][0].fixed or runs[-1][0].kind == "rest")):
            self.line("out.append(0)")

    def _varying(self, item: _Field, value: str) -> None:
        if item.array:
            self._array(item, value)
        elif not item.kind:
            self._structure(item.children, value)
        elif item.kind == "string":
            text = self.new("text")
            null = "out.append(0)" if self.flexible else r"out += b'\xff\xff'"
            self.line(f"if {value} is None: {null}")
            self.line("else:")
            with self.indented():
                self.line(f"{text} = {value}.encode()")
                self._count(f"len({text})", "INT16")
                self.line(f"out += {text}")
        elif item.kind == "rest":
            self.line(f"out += {value}")
        elif item.kind == "bytes":
            self._count(f"len({value})", "INT32")
            self.line(f"out += {value}")
        else:
            self._count(f"sum(map(len, {value}))", "INT32")
            self.line("parts.append(out)")
            self.line(f"parts += {value}")
            self.line("out = bytearray()")

    def _count(self, count: str, fixed: str) -> None:
        if self.flexible:
            self.line(f"out += uvarint({count} + 1)")
        else:
            self.line(f"out += {fixed}({count})")

    def _array(self, item: _Field, value: str) -> None:
        null = "out.append(0)" if self.flexible else r"out += b'\xff\xff\xff\xff'"
        self.line(f"if {value} is None: {null}")
        self.line("else:")
        with self.indented():
            self._count(f"len({value})", "INT32")
            if item.kind in _FORMATS:
                self.line(f"out += pack('>' + '{_FORMATS[item.kind]}' * len({value}), *{value})")
                return
            one = self.new("item")
            self.line(f"for {one} in {value}:")
            with self.indented():
                if item.kind:
                    self._varying(_Field(item.name, item.kind), one)
                else:
                    self._structure(item.children, one)


class _Decoder(_Compiler):
    def function(self, fields: Sequence[_Field]) -> str:
        if any(item.repeated for item in _all(fields)):
            self.line("buffer = bytes(buffer)")
        self.line("size = len(buffer)")
        value = self._structure(fields)
        self.line("if at > size: raise Truncated(f'{at} bytes in {size}')")
        self.line(f"return {value}, at")
        return "\n".join(["def function(buffer, at):", *self.lines])

    def _structure(self, fields: Sequence[_Field], into: str = "") -> str:
        """Reads the fields, and returns the expression of their value."""
        names: dict[str, str] = {}
        for item in fields:
            if not self.has(item) and not item.silent:
                names[item.name] = item.absent
        for run in _runs([item for item in fields if self.has(item) and item.tag is None]):
            if run[0].fixed:
                self._fixed(run, names)
            else:
                name = self.new(run[0].name)
                if run[0].kind or run[0].array:
                    self._varying(run[0], name)
                else:
                    self.line(f"{name} = {self._structure(run[0].children, run[0].into)}")
                if not run[0].silent:
                    names[run[0].name] = name
        if self.flexible and not any(item.kind == "rest" for item in fields):
            tagged = [item for item in fields if item.tag is not None and self.has(item)]
            self._tags(tagged, names)
        ordered = [names[item.name] for item in fields if not item.silent]
        if into:
            return f"{into}({', '.join(ordered)})"
        return _tuple(ordered) if ordered else "()"

    def _fixed(self, run: Sequence[_Field], names: dict[str, str]) -> None:
        formats, read = "", []
        for item in run:
            if item.silent:
                formats += f"{struct.calcsize('>' + item.fixed)}x"
            else:
                formats += item.fixed
                names[item.name] = self.new(item.name)
                read.append(item)
        packed = struct.Struct(">" + formats)
        if read:
            targets = "".join(f"{names[item.name]}, " for item in read)
            self.line(f"{targets}= {_keep(packed.unpack_from)}(buffer, at)")
        self.line(f"at += {packed.size}")
        for item in read:
            if item.kind == "error":
                name = names[item.name]
                self.line(f"{name} = ErrorCode({name}) if {name} else NO_ERROR")

    def _length(self, name: str, fixed: str, offset: int) -> None:
        """Reads a length that stands as itself or, compact, as one more; null is -1."""
        if self.flexible:
            self.line(f"{name} = buffer[at]; at += 1")
            self.line(f"if {name} > 127: {name}, at = longer({name}, buffer, at)")
            self.line(f"{name} -= 1")
        else:
            self.line(f"({name},) = {fixed}(buffer, at); at += {offset}")

    def _varying(self, item: _Field, name: str) -> None:
        if item.array:
            self._array(item, name)
            return
        if item.kind == "rest":
            self.line(f"{name} = buffer[at:]; at = size")
            return
        count, end = self.new("count"), self.new("end")
        if item.kind == "string":
            self._length(count, "READ_INT16", 2)
        else:
            self._length(count, "READ_INT32", 4)
        self.line(f"if {count} > 0:")
        with self.indented():
            self.line(f"{end} = at + {count}")
            self.line(f"if {end} > size: raise Truncated(f'{{{count}}} bytes wanted at {{at}} of {{size}}')")
            taken = f"buffer[at:{end}]"
            match item.kind:
                case "string":
                    taken = f"str({taken}, 'utf-8')"
                case "bytes":
                    taken = f"bytes({taken})"
            if not item.silent:
                self.line(f"{name} = {taken}")
            self.line(f"at = {end}")
        if item.silent:
            return
        empty = _ABSENT[item.kind]
        self.line("else:")
        with self.indented():
            if item.nullable:
                self.line(f"{name} = {empty} if {count} == 0 else None")
            else:
                self.line(f"{name} = {empty}")

    def _array(self, item: _Field, name: str) -> None:
        count = self.new("count")
        self._length(count, "READ_INT32", 4)
        refused = f"an array of {{{count}}} items in {{size - at}} bytes"
        self.line(f"if {count} > size - at: raise Truncated(f'{refused}')")
        if item.most is not None:
            refused = f"it lists {{{count}}} {item.name}; at most {item.most} are expected"
            self.line(f"if {count} > {item.most}: raise ValueError(f'{refused}')")
        if item.kind in _FORMATS:
            code = _FORMATS[item.kind]
            width = struct.calcsize(">" + code)
            few = _keep(tuple(struct.Struct(f">{count}{code}").unpack_from for count in range(8)))
            self.line(f"if {count} < 8: {name} = {few}[max(0, {count})](buffer, at)")
            self.line(f"else: {name} = unpack_from(f'>{{{count}}}{code}', buffer, at)")
            self.line(f"at += {width} * max(0, {count})")
            return
        self.line(f"{name} = []")
        place, begin = self.new("place"), self.new("begin")
        before = _keep([]) if item.repeated else ""
        self.line(f"for {place} in range({count}):")
        with self.indented():
            if item.repeated:
                self.line(f"if {place} < len({before}) and buffer.startswith({before}[{place}][0], at):")
                with self.indented():
                    self.line(f"{name}.append({before}[{place}][1])")
                    self.line(f"at += len({before}[{place}][0])")
                    self.line("continue")
                self.line(f"{begin} = at")
            if item.kind:
                value = self.new("item")
                self._varying(_Field(value, item.kind, nullable=item.nullable), value)
            else:
                value = self._structure(item.children, item.into)
            self.line(f"{name}.append({value})")
            if item.repeated:
                self.line(f"{before}[{place}:{place} + 1] = [(buffer[{begin}:at], {name}[-1])]")

    def _tags(self, tagged: Sequence[_Field], names: dict[str, str]) -> None:
        for item in tagged:
            names[item.name] = self.new(item.name)
            self.line(f"{names[item.name]} = None")
        self.line("if buffer[at] == 0: at += 1")
        if not tagged:
            self.line("else: at = skip_tags(buffer, at)")
            return
        self.line("else:")
        tag, count, end, size = (self.new(name) for name in ("tag", "count", "end", "size"))
        with self.indented():
            self.line(f"{count}, at = read_uvarint(buffer, at)")
            self.line(f"for _ in range({count}):")
            with self.indented():
                self.line(f"{tag}, at = read_uvarint(buffer, at)")
                self.line(f"{size}, at = read_uvarint(buffer, at)")
                self.line(f"{end} = at + {size}")
                self.line(f"if {end} > size: raise Truncated(f'a tag of {{{size}}} bytes')")
                for item in tagged:
                    self.line(f"if {tag} == {item.tag}:")
                    with self.indented():
                        if item.array:
                            self._array(item, names[item.name])
                        else:
                            self.line(f"{names[item.name]} = {self._structure(item.children, item.into)}")
                self.line(f"if at > {end}: raise Truncated('a tag that is longer than it says')")
                self.line(f"at = {end}")


def _all(fields: Sequence[_Field]) -> list[_Field]:
    return [part for item in fields for part in (item, *_all(item.children))]


def uvarint(value: int) -> bytes:
    """Encodes an unsigned varint: seven bits a byte, the lowest first."""
    if value < 0x80:
        return _SMALL[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(buffer: Buffer, at: int) -> tuple[int, int]:
    """Returns an unsigned varint, and the position behind it."""
    first = buffer[at]
    return (first, at + 1) if first < 0x80 else _longer(first, buffer, at + 1)


def _longer(first: int, buffer: Buffer, at: int) -> tuple[int, int]:
    """Reads the rest of a varint of several bytes."""
    value, shift = first & 0x7F, 7
    while True:
        byte = buffer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 28:
            raise Truncated(f"no varint at {at}")


def skip_tags(buffer: Buffer, at: int) -> int:
    """Returns the position behind tagged fields."""
    count, at = read_uvarint(buffer, at)
    for _ in range(count):
        _, at = read_uvarint(buffer, at)
        size, at = read_uvarint(buffer, at)
        at += size
        if at > len(buffer):
            raise Truncated(f"a tag of {size} bytes")
    return at


_SMALL = [bytes((value,)) for value in range(0x80)]
_GLOBALS: dict[str, Any] = {
    "EMPTY": _EMPTY,
    "ErrorCode": ErrorCode,
    "INT16": struct.Struct(">h").pack,
    "INT32": struct.Struct(">i").pack,
    "NO_ERROR": ErrorCode.NONE,
    "READ_INT16": struct.Struct(">h").unpack_from,
    "READ_INT32": struct.Struct(">i").unpack_from,
    "Truncated": Truncated,
    "longer": _longer,
    "pack": struct.pack,
    "read_uvarint": read_uvarint,
    "skip_tags": skip_tags,
    "unpack_from": struct.unpack_from,
    "uvarint": uvarint,
}


def _keep(value: object) -> str:
    """Returns a name by which the compiled functions find the value."""
    name = f"kept_{len(_GLOBALS)}"
    _GLOBALS[name] = value
    return name


def grouped(
    partitions: Iterable[tuple[tuple[T, int], tuple[Any, ...]]],
) -> list[tuple[T, list[tuple[Any, ...]]]]:
    """Returns topics, each with its partitions: a partition's index, and behind it its values."""
    topics: dict[T, list[Row]] = {}
    for (topic, index), values in partitions:
        topics.setdefault(topic, []).append((index, *values))
    return list(topics.items())


def indexes(partitions: Iterable[tuple[T, int]]) -> list[tuple[T, list[int]]]:
    """Returns topics, each with the indexes of its partitions."""
    topics: dict[T, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return list(topics.items())
