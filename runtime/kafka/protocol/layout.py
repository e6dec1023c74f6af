"""Compiles the types of requests and responses to functions that encode and decode them.

The type of a value is its description. Its fields stand in the order of Kafka's message definitions:

    class ListedGroup(Struct, frozen=True):
        name: str
        state: Annotated[str, since(4)] = ""
        _members: ClassVar[Int32] = 0
        leader: Annotated[Leader | None, tag(0)] = None

- `Int8` to `Int64`, `bool`, `float`, `Uuid`, `str`, `bytes` and `ErrorCode` are single values. `Records` and
  `Pieces` are record batches, which are never copied; `Rest` is the bytes up to the end. `str | None` may be
  null.
- `since(4)`, `until(3)` and `between(8, 10)` are the versions that have a field. In other versions it is read
  as its default. A tagged field is read as its default where it is missing.
- A class variable whose name begins with `_` is no value: its constant is written, and it is skipped when it
  is read. So is a `Skipped` field of a tuple.
- `WIRE` names the fields in their order, if the constructor has another order or more fields at its end.
- `Sequence[X]`, `tuple[X, ...]` and `frozenset[X]` are arrays. `tuple[X, Y]` is the fields of X and then
  those of Y. A structure in a structure has tagged fields of its own, unless it is `INLINE`.
- `X | ErrorCode` is an error and then X; the value is the error if there is one. `X | Refusal` is an error,
  its message and then X. In `Refusal | None`, None stands for no error.
- `Mapping[K, V]` is an array of entries: the key, then the error if V may be one, then the value. An
  `EntryOrder` is another order, with what is skipped. A mapping to `Refusal` has only the entries with an
  error.
- `Converted` is a type on the wire, and a function that makes the value of it.
- `Mapping[N, V]` and `Sequence[N]` of a named tuple like TopicPartition are arrays of topics, each with its
  partitions: the first field of N stands once, before an array of the second one. `Nested(1)` beside a
  `Sequence[X]` is the same for a structure: its first field stands once, before an array of the others.

Each version is compiled when it is used first. A version from `flexible` on has compact lengths and tags.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields as struct_fields

from runtime.kafka.errors import ErrorCode, Refusal

T = TypeVar("T")
K = TypeVar("K")
Buffer = bytes | bytearray | memoryview


class Truncated(ValueError):
    """The bytes end before the value does, or hold an impossible value."""


class Mark(Enum):
    INLINE = "inline"
    REPEATED = "repeated"  # an item that equals the item at the same place before is the same object
    SKIPPED = "skipped"
    KEY = "key"
    ERROR = "error"
    VALUE = "value"


Int8 = Annotated[int, "int8"]
Int16 = Annotated[int, "int16"]
Int32 = Annotated[int, "int32"]
Int64 = Annotated[int, "int64"]
Uuid = Annotated[bytes, "uuid"]
Records = Annotated[memoryview, "records"]
Pieces = Annotated[Sequence[Buffer], "records"]
Rest = Annotated[memoryview, "rest"]
Skipped = Annotated[T, Mark.SKIPPED]
INLINE, REPEATED, KEY, ERROR, VALUE = Mark.INLINE, Mark.REPEATED, Mark.KEY, Mark.ERROR, Mark.VALUE


class Present(Struct, frozen=True):
    """A Present is the versions of a field, the number of a tagged field, and what is read without it."""

    versions: range
    tag: int | None = None
    absent: object = ...


def since(first: int, absent: object = ...) -> Present:
    return Present(range(first, 1 << 15), absent=absent)


def until(last: int) -> Present:
    return Present(range(last + 1))


def between(first: int, last: int, absent: object = ...) -> Present:
    return Present(range(first, last + 1), absent=absent)


def tag(number: int) -> Present:
    return Present(range(1 << 15), number)


class Converted:
    """A Converted is the type of a value on the wire, and the function that makes the value of it."""

    def __init__(self, function: Callable[[Any], Any], kind: Any) -> None:
        self.function = function
        self.kind = kind


class EntryOrder:
    """An EntryOrder is that of an entry's parts: KEY, ERROR, VALUE, and the types that are skipped."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts


class Nested:
    """A Nested counts the fields that stand once for several items. Behind them, types are skipped."""

    def __init__(self, fields: int, *skipped: Any) -> None:
        self.fields = fields
        self.skipped = skipped


_KINDS: dict[Any, str] = {
    str: "string",
    bytes: "bytes",
    bool: "bool",
    float: "float64",
    ErrorCode: "error",
}
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
_EMPTY = memoryview(bytearray())


@dataclass(slots=True, eq=False)
class _Field:
    """A field on the wire: a single value of a kind, a structure if it has `row`, or an array of `items`."""

    name: str
    kind: str = ""
    row: _Part | None = None
    items: _Items | None = None
    nullable: bool = False
    versions: range = range(1 << 15)
    tag: int | None = None
    skipped: bool = False
    default: str = ""

    @property
    def absent(self) -> str:
        """What is read where a version does not have the field."""
        if self.default:
            return self.default
        if self.nullable or self.row is not None:
            return "None"
        if self.items is not None:
            return "{}" if self.items.begin == "{}" else "()"
        return _ABSENT.get(self.kind, "0")

    @property
    def fixed(self) -> str:
        """The field's struct format, or empty if its size varies."""
        return _FORMATS.get(self.kind, "") if self.tag is None else ""


Names = dict[_Field, str]
"""The expression of each field's value."""


@dataclass(slots=True)
class _Part:
    """The fields of a value, one behind another.

    `build` returns the expression of the value, from those of its fields. `spread` stores the expressions of
    its fields, from that of the value.
    """

    fields: list[_Field]
    build: Callable[[Names], str]
    spread: Callable[[_Encoder, str, Names], None]


@dataclass(slots=True)
class _Items:
    """The items of an array. They are rows of fields with their tags, or single values.

    `begin` is the empty array, and `add` the statement that adds an item to it. With `shared`, that is the
    array around this one. `listed` returns what is iterated to write a value, and `converted` what is read.
    """

    row: _Part
    begin: str = "[]"
    add: Callable[[Names, str], str] | None = None
    single: bool = False
    shared: bool = False
    listed: str = "{}"
    converted: str = ""
    repeated: bool = False


def _marks(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    return (kind.__origin__, kind.__metadata__) if get_origin(kind) is Annotated else (kind, ())


def _mark_of(kind: type[T], marks: Iterable[Any]) -> T | None:
    return next((mark for mark in marks if isinstance(mark, kind)), None)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _is_named_tuple(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and kind is not tuple


def _is_error(kind: Any) -> bool:
    return _marks(kind)[0] in (ErrorCode, Refusal)


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType)


def _alone(item: _Field) -> _Part:
    return _Part(
        [item], lambda names: names[item], lambda _encoder, value, names: names.update({item: value})
    )


def _part(name: str, kind: Any, *, spread: bool = True) -> _Part:
    """Returns the fields of a value of this type. Unless it is `spread`, a structure is one field."""
    base, marks = _marks(kind)
    primitive = _mark_of(str, marks) or _KINDS.get(base)
    if (read := _mark_of(Converted, marks)) is not None:
        raw = _part(name, read.kind)
        part = _Part(raw.fields, lambda names: f"{_keep(read.function)}({raw.build(names)})", raw.spread)
    elif primitive is not None:
        part = _alone(_Field(name, primitive))
    elif _is_union(base):
        part = _union(name, get_args(base))
    elif _is_struct(base):
        part = _structure(base)
        if not spread and INLINE not in marks:
            part = _alone(_Field(name, row=part))
    elif _is_named_tuple(base):
        part = _row(tuple(get_type_hints(base, include_extras=True).values()), f"{_keep(base)}({{}})")
    elif get_origin(base) is tuple and Ellipsis not in get_args(base):
        part = _row(get_args(base), "({})")
    else:
        part = _alone(_Field(name, items=_items(base, marks)))
    present = _mark_of(Present, marks)
    for item in part.fields:
        if present is not None:
            item.versions, item.tag = present.versions, present.tag
            if present.absent is not ...:
                item.default = repr(present.absent)
        if Mark.SKIPPED in marks:
            _skip(item)
    return part


def _skip(item: _Field) -> None:
    item.skipped = True
    row = item.row if item.items is None else item.items.row
    for inner in row.fields if row is not None else ():
        _skip(inner)


def _row(kinds: Sequence[Any], built: str) -> _Part:
    """Returns the fields of several types. The value is a tuple without what is skipped."""
    parts = [_part(f"item{number}", kind, spread=False) for number, kind in enumerate(kinds)]
    valued = [part for part in parts if not part.fields[0].skipped]

    def spread(encoder: _Encoder, value: str, names: Names) -> None:
        variables = [encoder.new("item") for _ in valued]
        encoder.line(f"{''.join(f'{variable}, ' for variable in variables)}= {value}")
        for part, variable in zip(valued, variables, strict=True):
            part.spread(encoder, variable, names)

    def build(names: Names) -> str:
        return built.format("".join(f"{part.build(names)}, " for part in valued))

    return _Part([item for part in parts for item in part.fields], build, spread)


def _structure(made: Any) -> _Part:
    defaults = {item.name: item.default for item in struct_fields(made)}
    parts: dict[str, _Part] = {}
    constants: Names = {}
    hints = get_type_hints(made, include_extras=True)
    for name in getattr(made, "WIRE", hints):
        kind = hints[name]
        if name in defaults:
            parts[name] = _part(name, kind, spread=False)
            if defaults[name] is not NODEFAULT:
                for item in parts[name].fields:
                    item.default = _keep(defaults[name])
        elif get_origin(kind) is ClassVar and name[0] == "_" != name[1]:
            parts[name] = _part(name, Annotated[get_args(kind)[0], Mark.SKIPPED], spread=False)
            if hasattr(made, name):
                constants[parts[name].fields[0]] = _keep(getattr(made, name))
    valued = [name for name in made.__struct_fields__ if name in parts]

    def spread(encoder: _Encoder, value: str, names: Names) -> None:
        names |= constants
        for name in valued:
            parts[name].spread(encoder, f"{value}.{name}", names)

    def build(names: Names) -> str:
        return f"{_keep(made)}({', '.join(parts[name].build(names) for name in valued)})"

    return _Part([item for part in parts.values() for item in part.fields], build, spread)


def _union(name: str, kinds: Sequence[Any]) -> _Part:
    error = next((kind for kind in kinds if _is_error(kind)), None)
    value = next((kind for kind in kinds if kind not in (error, NoneType)), None)
    if error is not None:
        return _or_error(_part("error", error), None if value is None else _part(name, value))
    part = _part(name, value, spread=False)
    part.fields[0].nullable = True
    return part


def _or_error(error: _Part, value: _Part | None) -> _Part:
    def build(names: Names) -> str:
        otherwise = "None" if value is None else value.build(names)
        return f"({error.build(names)} if {names[error.fields[0]]} else {otherwise})"

    def spread(_encoder: _Encoder, _value: str, _names: Names) -> None:
        raise TypeError("a value or an error is only read")

    return _Part([*error.fields, *(value.fields if value is not None else ())], build, spread)


def _items(base: Any, marks: Sequence[Any]) -> _Items:
    origin, args = get_origin(base), get_args(base)
    nested = _mark_of(Nested, marks)
    if issubclass(origin, Mapping):
        items = _entries(args[0], args[1], _mark_of(EntryOrder, marks) or EntryOrder(), nested or Nested(1))
    elif _is_named_tuple(args[0]):
        key = _part("key", args[0])
        inner = _Items(
            _alone(key.fields[1]), add=lambda names, array: f"{array}.append({key.build(names)})", single=True
        )
        items = _divided(key.fields[:1], inner, nested or Nested(1), "grouped({})")
    else:
        item = _marks(args[0])[0]
        row = _part("item", args[0])
        single = not (
            _is_struct(item)
            or (_is_union(item) and any(map(_is_error, get_args(item))))
            or get_origin(item) is tuple
        )
        items = _Items(row, add=lambda names, array: f"{array}.append({row.build(names)})", single=single)
        if nested is not None:
            shared = row.fields[: nested.fields]
            items.row = _Part(row.fields[nested.fields :], row.build, row.spread)
            items = _divided(
                shared, items, nested, f"grouped((item.{shared[0].name}, item) for item in {{}})"
            )
    if origin in (tuple, frozenset):
        items.converted = f"{origin.__name__}({{}})"
    items.repeated = REPEATED in marks
    return items


def _divided(outer: Sequence[_Field], inner: _Items, nested: Nested, listed: str) -> _Items:
    """Returns an array whose items hold the outer fields once, and an array of the inner items."""
    inner.shared = True
    array = _Field("items", items=inner)

    def spread(_encoder: _Encoder, item: str, names: Names) -> None:
        names[outer[0]], names[array] = f"{item}[0]", f"{item}[1]"

    skipped = [
        item for kind in nested.skipped for item in _part("skipped", Annotated[kind, Mark.SKIPPED]).fields
    ]
    row = _Part([*outer, *skipped, array], lambda _names: "", spread)
    return _Items(row, inner.begin, listed=listed)


def _entries(key_kind: Any, value_kind: Any, entry: EntryOrder, nested: Nested) -> _Items:
    key = _part("key", key_kind)
    kinds = get_args(value_kind) if _is_union(value_kind) else ()
    error_kind = next((kind for kind in kinds if _is_error(kind)), None)
    if error_kind is None:
        result = value = _part("value", value_kind)
        error = None
    else:
        value = _part("value", next(kind for kind in kinds if kind is not error_kind))
        error = _part("error", error_kind)
        result = _or_error(error, value)
    by_topic = _is_named_tuple(key_kind)
    parts = {
        KEY: key.fields[1:] if by_topic else key.fields,
        ERROR: [] if error is None else error.fields,
        VALUE: value.fields,
    }
    fields: list[_Field] = []
    for part in entry.parts or (KEY, ERROR, VALUE):
        fields += parts[part] if part in parts else _part("skipped", Annotated[part, Mark.SKIPPED]).fields

    def add(names: Names, target: str) -> str:
        added = f"{target}[{key.build(names)}] = {result.build(names)}"
        return f"if {names[value.fields[0]]}: {added}" if value_kind is Refusal else added

    def spread(encoder: _Encoder, item: str, names: Names) -> None:
        key.spread(encoder, f"{item}[0]", names)
        result.spread(encoder, f"{item}[1]", names)

    items = _Items(_Part(fields, lambda _names: "", spread), "{}", add)
    if by_topic:
        return _divided(key.fields[:1], items, nested, "by_topic({})")
    items.listed = "{}.items()"
    return items


class Layout:
    """The fields of a type in all versions."""

    def __init__(self, kind: Any, flexible: int = 1 << 15) -> None:
        self._kind = kind
        self._flexible = flexible
        self._encoders: dict[int, Callable[[Any], list[Buffer]]] = {}
        self._decoders: dict[int, Callable[[memoryview, int], tuple[Any, int]]] = {}

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
        source = compiler.function(_part("value", self._kind))
        names = dict(_GLOBALS)
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

    def runs(self, fields: Sequence[_Field]) -> list[list[_Field]]:
        """Groups neighbours of fixed size, which are packed in one call. Tagged fields are left out."""
        runs: list[list[_Field]] = []
        for item in fields:
            if not self.has(item) or item.tag is not None:
                continue
            if item.fixed and runs and runs[-1][0].fixed:
                runs[-1].append(item)
            else:
                runs.append([item])
        return runs


class _Encoder(_Compiler):
    def function(self, part: _Part) -> str:
        self.line("out = bytearray()")
        self.line("parts = []")
        self._row(part, "value")
        self.line("parts.append(out)")
        self.line("return parts")
        return "\n".join(["def function(value):", *self.lines])

    def _row(self, part: _Part, value: str) -> None:
        names: Names = {}
        part.spread(self, value, names)
        runs = self.runs(part.fields)
        for number, run in enumerate(runs):
            values = [names.get(item) or item.absent for item in run]
            if not run[0].fixed:
                self._varying(run[0], values[0])
                continue
            tags = "x" if self.flexible and number == len(runs) - 1 else ""
            packed = struct.Struct(">" + "".join(item.fixed for item in run) + tags)
            self.line(f"out += {_keep(packed.pack)}({', '.join(values)})")
        if self.flexible and not (runs and (runs[-1][0].fixed or runs[-1][0].kind == "rest")):
            self.line("out.append(0)")

    def _varying(self, item: _Field, value: str) -> None:
        if item.items is not None:
            self._array(item.items, value)
        elif item.row is not None:
            self._row(item.row, value)
        elif item.kind == "string":
            text = self.new("text")
            self.line(f"{text} = {value}")
            null = "out.append(0)" if self.flexible else r"out += b'\xff\xff'"
            self.line(f"if {text} is None: {null}")
            self.line("else:")
            with self.indented():
                self.line(f"{text} = {text}.encode()")
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

    def _array(self, items: _Items, value: str) -> None:
        listed, item = self.new("items"), self.new("item")
        self.line(f"{listed} = {value}")
        null = "out.append(0)" if self.flexible else r"out += b'\xff\xff\xff\xff'"
        self.line(f"if {listed} is None: {null}")
        self.line("else:")
        with self.indented():
            if items.listed != "{}":
                self.line(f"{listed} = {items.listed.format(listed)}")
            self._count(f"len({listed})", "INT32")
            (only,) = items.row.fields if items.single else (None,)
            if only is not None and only.fixed:
                self.line(f"out += pack('>' + '{only.fixed}' * len({listed}), *{listed})")
                return
            self.line(f"for {item} in {listed}:")
            with self.indented():
                if only is not None:
                    self._varying(only, item)
                else:
                    self._row(items.row, item)


class _Decoder(_Compiler):
    def function(self, part: _Part) -> str:
        names: Names = {}
        self.line("size = len(buffer)")
        self._row(part, names)
        self.line("if at > size: raise Truncated(f'{at} bytes in {size}')")
        self.line(f"return {part.build(names)}, at")
        begin = ["def function(buffer, at):"]
        if any("buffer.startswith" in line for line in self.lines):
            begin.append("    buffer = bytes(buffer)")
        return "\n".join([*begin, *self.lines])

    def _row(self, part: _Part, names: Names, array: str = "") -> None:
        """Reads the fields and stores their expressions in `names`. What is in them is added to the array."""
        for item in part.fields:
            names[item] = item.absent
        for run in self.runs(part.fields):
            if run[0].fixed:
                self._fixed(run, names)
            else:
                self._varying(run[0], names, array)
        if self.flexible and not any(item.kind == "rest" for item in part.fields):
            self._tags([item for item in part.fields if item.tag is not None and self.has(item)], names)

    def _fixed(self, run: Sequence[_Field], names: Names) -> None:
        formats = [f"{struct.calcsize('>' + item.fixed)}x" if item.skipped else item.fixed for item in run]
        packed = struct.Struct(">" + "".join(formats))
        read = [item for item in run if not item.skipped]
        names |= {item: self.new(item.name) for item in read}
        if read:
            targets = "".join(f"{names[item]}, " for item in read)
            self.line(f"{targets}= {_keep(packed.unpack_from)}(buffer, at)")
        self.line(f"at += {packed.size}")
        for item in read:
            if item.kind == "error":
                self.line(f"{names[item]} = ErrorCode({names[item]}) if {names[item]} else NO_ERROR")

    def _length(self, name: str, fixed: str, offset: int) -> None:
        """Reads a length that stands as itself or, compact, as one more; null is -1."""
        if self.flexible:
            self.line(f"{name} = buffer[at]; at += 1")
            self.line(f"if {name} > 127: {name}, at = longer({name}, buffer, at)")
            self.line(f"{name} -= 1")
        else:
            self.line(f"({name},) = {fixed}(buffer, at); at += {offset}")

    def _varying(self, item: _Field, names: Names, array: str = "") -> None:
        if item.items is not None:
            names[item] = self._array(item, item.items, names, array)
        elif item.row is not None:
            self._row(item.row, names)
            names[item] = item.row.build(names)
        elif item.kind == "rest":
            names[item] = self.new(item.name)
            self.line(f"{names[item]} = buffer[at:]; at = size")
        else:
            names[item] = self._bytes(item)

    def _bytes(self, item: _Field) -> str:
        name, count, end = self.new(item.name), self.new("count"), self.new("end")
        if item.kind == "string":
            self._length(count, "READ_INT16", 2)
        else:
            self._length(count, "READ_INT32", 4)
        self.line(f"if {count} > 0:")
        with self.indented():
            self.line(f"{end} = at + {count}")
            self.line(f"if {end} > size: raise Truncated(f'{{{count}}} bytes wanted at {{at}} of {{size}}')")
            if not item.skipped:
                taken = {"string": "str(buffer[at:{}], 'utf-8')", "bytes": "bytes(buffer[at:{}])"}
                self.line(f"{name} = {taken.get(item.kind, 'buffer[at:{}]').format(end)}")
            self.line(f"at = {end}")
        if not item.skipped:
            empty = _ABSENT[item.kind]
            self.line(f"else: {name} = {f'{empty} if {count} == 0 else None' if item.nullable else empty}")
        return name

    def _array(self, item: _Field, items: _Items, names: Names, around: str) -> str:
        count = self.new("count")
        self._length(count, "READ_INT32", 4)
        refused = f"an array of {{{count}}} items in {{size - at}} bytes"
        self.line(f"if {count} > size - at: raise Truncated(f'{refused}')")
        array = around if items.shared else self.new(item.name)
        (only,) = items.row.fields if items.single else (None,)
        if only is not None and only.fixed and not items.shared:
            code, width = only.fixed, struct.calcsize(">" + only.fixed)
            few = _keep(tuple(struct.Struct(f">{count}{code}").unpack_from for count in range(8)))
            self.line(f"if {count} < 8: {array} = {few}[max(0, {count})](buffer, at)")
            self.line(f"else: {array} = unpack_from(f'>{{{count}}}{code}', buffer, at)")
            self.line(f"at += {width} * max(0, {count})")
            return array
        if not items.shared:
            self.line(f"{array} = {items.begin}")
        place, begin = self.new("place"), self.new("begin")
        before = _keep([]) if items.repeated else ""
        self.line(f"for {place} in range({count}):")
        with self.indented():
            if items.repeated:
                self.line(f"if {place} < len({before}) and buffer.startswith({before}[{place}][0], at):")
                with self.indented():
                    self.line(f"{array}.append({before}[{place}][1])")
                    self.line(f"at += len({before}[{place}][0])")
                    self.line("continue")
                self.line(f"{begin} = at")
            inner = dict(names)
            if only is None:
                self._row(items.row, inner, array)
            elif only.fixed:
                self._fixed([only], inner)
            else:
                self._varying(only, inner)
            if items.add is not None and not item.skipped:
                self.line(items.add(inner, array))
            if items.repeated:
                self.line("if at > size: raise Truncated(f'{at} bytes in {size}')")  # nothing cut is kept
                self.line(f"{before}[{place}:{place} + 1] = [(buffer[{begin}:at], {array}[-1])]")
        return items.converted.format(array) if items.converted else array

    def _tags(self, tagged: Sequence[_Field], names: Names) -> None:
        if not tagged:
            self.line("if buffer[at] == 0: at += 1")
            self.line("else: at = skip_tags(buffer, at)")
            return
        variables = {item: self.new(item.name) for item in tagged}
        for item in tagged:
            self.line(f"{variables[item]} = {item.absent}")
        names |= variables
        number, count, end, size = (self.new(name) for name in ("tag", "count", "end", "size"))
        self.line("if buffer[at] == 0: at += 1")
        self.line("else:")
        with self.indented():
            self.line(f"{count}, at = read_uvarint(buffer, at)")
            self.line(f"for _ in range({count}):")
            with self.indented():
                self.line(f"{number}, at = read_uvarint(buffer, at)")
                self.line(f"{size}, at = read_uvarint(buffer, at)")
                self.line(f"{end} = at + {size}")
                self.line(f"if {end} > size: raise Truncated(f'a tag of {{{size}}} bytes')")
                for item in tagged:
                    self.line(f"if {number} == {item.tag}:")
                    with self.indented():
                        inner: Names = {}
                        self._varying(item, inner)
                        self.line(f"{variables[item]} = {inner[item]}")
                self.line(f"if at > {end}: raise Truncated('a tag that is longer than it says')")
                self.line(f"at = {end}")


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


def grouped(pairs: Iterable[tuple[K, T]]) -> list[tuple[K, list[T]]]:
    """Returns the first parts of pairs, each with the second parts that stand beside it."""
    groups: dict[K, list[T]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return list(groups.items())


def _by_topic(partitions: Mapping[tuple[str, int], T]) -> list[tuple[str, list[tuple[tuple[str, int], T]]]]:
    topics: dict[str, list[tuple[tuple[str, int], T]]] = {}
    for item in partitions.items():
        topics.setdefault(item[0][0], []).append(item)
    return list(topics.items())


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
    "by_topic": _by_topic,
    "grouped": grouped,
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
