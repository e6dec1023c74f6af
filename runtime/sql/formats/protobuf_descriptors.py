"""Reduces a Protobuf descriptor set to what one message needs.

The set of a company may have megabytes and change every day. A job gets the message with all messages and
enums of its fields: its settings stay small, and a change of another message changes no plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from runtime.sql.formats.protobuf_wire import SIZED, Budget, MalformedMessage, parts_of, written_varint

# Fields of FileDescriptorProto
_NAME, _PACKAGE, _MESSAGE, _ENUM, _SYNTAX, _EDITION = 1, 2, 4, 5, 12, 14
_KEPT = {_NAME, _PACKAGE, _SYNTAX, _EDITION}
# Fields of DescriptorProto and of FieldDescriptorProto
_FIELD, _NESTED, _TYPE_NAME = 2, 3, 6
_DEEPEST = 50  # messages that are declared within one another


class _Declaration(NamedTuple):
    """A message or an enum at the top of a file: `begin … end` are its bytes with the tag."""

    file: int
    is_message: bool
    begin: int
    at: int
    end: int


def needed_descriptors(data: bytes, message: str) -> bytes:
    """Returns the files of a descriptor set with the declarations that a message needs, and no others.

    Bytes that are no descriptor set, or one without the message, are returned as they are: who reads the
    schema says what is wrong with them.
    """
    try:
        return _needed(data, message.removeprefix("."))
    except (IndexError, UnicodeDecodeError, MalformedMessage):
        return data


def _needed(data: bytes, message: str) -> bytes:
    budget = Budget()
    headers: list[bytes] = []
    known: dict[str, _Declaration] = {}
    for one in parts_of(data, budget):
        if (one.number, one.wire) != (1, SIZED):
            raise MalformedMessage("it has other fields than files")
        headers.append(_read_file(data, one.at, one.end, len(headers), known, budget))
    wanted, kept = [message], set[_Declaration]()
    while wanted:
        declaration = _declaration_of(wanted.pop(), known)
        if declaration is None or declaration in kept:
            continue
        kept.add(declaration)
        if declaration.is_message:
            wanted += _types_of(data[declaration.at : declaration.end], budget)
    if not kept:
        return data
    files: dict[int, list[bytes]] = {}
    for each in sorted(kept, key=lambda each: each.begin):
        files.setdefault(each.file, [headers[each.file]]).append(data[each.begin : each.end])
    return b"".join(_file(b"".join(parts)) for parts in files.values())


def _read_file(
    data: bytes, begin: int, end: int, number: int, known: dict[str, _Declaration], budget: Budget
) -> bytes:
    """Adds the declarations of a file, and returns its fields without them."""
    content = data[begin:end]
    parts = list(parts_of(content, budget))
    package = next((content[one.at : one.end].decode() for one in parts if one.number == _PACKAGE), "")
    for one in parts:
        if one.number in (_MESSAGE, _ENUM):
            name = _name_of(content[one.at : one.end], budget)
            known.setdefault(
                f"{package}.{name}" if package else name,
                _Declaration(
                    number, one.number == _MESSAGE, begin + one.begin, begin + one.at, begin + one.end
                ),
            )
    return b"".join(content[one.begin : one.end] for one in parts if one.number in _KEPT)


def _name_of(content: bytes, budget: Budget) -> str:
    return next(
        (content[one.at : one.end].decode() for one in parts_of(content, budget) if one.number == _NAME), ""
    )


def _declaration_of(name: str, known: dict[str, _Declaration]) -> _Declaration | None:
    """Returns the declaration at the top of a file that has a type, which may be nested in it."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return known.get(name)


def _types_of(content: bytes, budget: Budget, depth: int = 0) -> Iterator[str]:
    """Yields the types of a message's fields, and those of the messages that are declared in it."""
    if depth > _DEEPEST:
        raise MalformedMessage("too many messages are declared within one another")
    for one in parts_of(content, budget):
        if one.wire != SIZED:
            continue
        part = content[one.at : one.end]
        if one.number == _FIELD:
            for each in parts_of(part, budget):
                if (each.number, each.wire) == (_TYPE_NAME, SIZED):
                    yield part[each.at : each.end].decode().removeprefix(".")
        elif one.number == _NESTED:
            yield from _types_of(part, budget, depth + 1)


def _file(content: bytes) -> bytes:
    return bytes([1 << 3 | SIZED]) + written_varint(len(content)) + content
