"""Reads Protobuf descriptors: their types, and the fields of a message as Spark's DDL.

The functions are pure. A schema is the full name of a message, a blank, and a FileDescriptorSet in base64, as
`protoc --include_imports --descriptor_set_out` writes it. Errors name the place in the message.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import functools
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from runtime.sql.formats.encoded import BadSchema

TIMESTAMP = "google.protobuf.Timestamp"

_MOST_DESCRIPTORS = 1 << 19  # bytes: the job's settings are one record of a topic
_MOST_FIELDS = 5_000  # in the DDL
_DEEPEST_TYPE = 50  # messages within one another in the DDL
_MOST_NAME = 255  # characters of a name
_MOST_COMPARED = 100_000  # characters of names among which similar ones are looked for
_MOST_REASON = 200  # characters of what the library says about a descriptor set
_KEPT = 8  # schemas that are not read again
_HINT = "write it with protoc --include_imports --descriptor_set_out=FILE"

PLAIN = {
    FieldDescriptor.TYPE_DOUBLE: "DOUBLE",
    FieldDescriptor.TYPE_FLOAT: "FLOAT",
    FieldDescriptor.TYPE_INT64: "BIGINT",
    FieldDescriptor.TYPE_UINT64: "DECIMAL(20, 0)",
    FieldDescriptor.TYPE_INT32: "INT",
    FieldDescriptor.TYPE_FIXED64: "DECIMAL(20, 0)",
    FieldDescriptor.TYPE_FIXED32: "BIGINT",
    FieldDescriptor.TYPE_BOOL: "BOOLEAN",
    FieldDescriptor.TYPE_STRING: "STRING",
    FieldDescriptor.TYPE_BYTES: "BINARY",
    FieldDescriptor.TYPE_UINT32: "BIGINT",
    FieldDescriptor.TYPE_ENUM: "STRING",
    FieldDescriptor.TYPE_SFIXED32: "INT",
    FieldDescriptor.TYPE_SFIXED64: "BIGINT",
    FieldDescriptor.TYPE_SINT32: "INT",
    FieldDescriptor.TYPE_SINT64: "BIGINT",
}
_TIMESTAMP_FIELDS = [
    ("seconds", 1, FieldDescriptor.TYPE_INT64, False),
    ("nanos", 2, FieldDescriptor.TYPE_INT32, False),
]


class ProtobufSchema:
    """The message that values have: `root` is its descriptor, and `parse` reads the bytes of one value."""

    def __init__(self, text: str) -> None:
        """Raises BadSchema."""
        name, _, encoded = text.strip().partition(" ")
        name = name.removeprefix(".")
        if len(encoded) > _MOST_DESCRIPTORS * 4 // 3 + 4:
            raise BadSchema(
                f"the descriptor set has no message {name[:_MOST_NAME]}, or the message needs more than"
                f" {_MOST_DESCRIPTORS >> 10} KiB of it"
            )
        try:
            files = FileDescriptorSet.FromString(base64.b64decode(encoded, validate=True)).file
        except (binascii.Error, ValueError):
            raise BadSchema("no name of a message and a descriptor set in base64") from None
        except DecodeError:
            raise BadSchema(f"the file is no FileDescriptorSet: {_HINT}") from None
        declared = {
            full: (number, type_) for number, file in enumerate(files) for full, type_ in _types_of(file)
        }
        if not isinstance(declared.get(name, (0, None))[1], DescriptorProto):
            raise BadSchema(_no_message(name, declared))
        self.root: Descriptor = _pool(files, declared).FindMessageTypeByName(name)
        self.parse = GetMessageClass(self.root).FromString


@functools.lru_cache(_KEPT)
def read_schema(text: str) -> ProtobufSchema:
    """Returns the message of a schema, which is read once. Raises BadSchema."""
    return ProtobufSchema(text)


def is_message(field: FieldDescriptor) -> bool:
    """Returns whether the values of a field are messages; those of a map and of a group are not."""
    return field.type == FieldDescriptor.TYPE_MESSAGE and entry_of(field) is None


def entry_of(field: FieldDescriptor) -> Descriptor | None:
    """Returns the message with the key and the value of a map; None for any other field."""
    of = field.message_type
    return of if of is not None and of.GetOptions().map_entry else None


def ddl_of(text: str) -> str:
    """Returns the fields of a message in Spark's DDL. Raises BadSchema for what expressions can't read."""
    root = read_schema(text).root
    if not root.fields:
        raise BadSchema(f"{root.full_name} has no fields")
    return ", ".join(_Ddl().fields(root, "value", (), " "))


class _Ddl:
    """It writes one DDL. A message is written again at each place, so the fields are counted."""

    def __init__(self) -> None:
        self._count = 0

    def fields(
        self, message: Descriptor, place: str, inside: tuple[str, ...], separator: str
    ) -> Iterator[str]:
        if message.full_name in inside:
            raise BadSchema(f"{place} contains itself: expressions can't read a recursive message")
        if len(inside) >= _DEEPEST_TYPE:
            raise BadSchema(f"value has more than {_DEEPEST_TYPE} messages within one another")
        self._count += len(message.fields)
        if self._count > _MOST_FIELDS:
            raise BadSchema(f"value has more than {_MOST_FIELDS:,} fields, with those of its messages")
        for field in message.fields:
            kind = self._field(field, f"{place}.{field.name}", (*inside, message.full_name))
            yield f"`{field.name}`{separator}{kind}"

    def _field(self, field: FieldDescriptor, place: str, inside: tuple[str, ...]) -> str:
        if (entry := entry_of(field)) is not None:
            return f"MAP<STRING, {self._type(entry.fields_by_name['value'], place, inside)}>"
        kind = self._type(field, place, inside)
        return f"ARRAY<{kind}>" if field.is_repeated else kind

    def _type(self, field: FieldDescriptor, place: str, inside: tuple[str, ...]) -> str:
        if field.type == FieldDescriptor.TYPE_GROUP:
            raise BadSchema(f"{place} is a group, which expressions can't read")
        if field.type != FieldDescriptor.TYPE_MESSAGE:
            return PLAIN[field.type]
        if field.message_type.full_name != TIMESTAMP:
            return f"STRUCT<{', '.join(self.fields(field.message_type, place, inside, ': '))}>"
        if [
            (member.name, member.number, member.type, member.is_repeated)
            for member in field.message_type.fields
        ] != (_TIMESTAMP_FIELDS):
            raise BadSchema(f"{place}: {TIMESTAMP} has other fields than int64 seconds = 1, int32 nanos = 2")
        return "TIMESTAMP"


_Type: TypeAlias = "DescriptorProto | EnumDescriptorProto"
_Types = Mapping[str, tuple[int, _Type]]  # by full name, with the number of the file


def _types_of(file: FileDescriptorProto) -> Iterator[tuple[str, _Type]]:
    """Yields the messages and enums that a file declares, with their full names."""
    waiting: list[tuple[str, _Type]] = [
        (file.package, type_) for type_ in (*file.message_type, *file.enum_type)
    ]
    while waiting:
        space, type_ = waiting.pop()
        full = f"{space}.{type_.name}" if space else type_.name
        yield full, type_
        if isinstance(type_, DescriptorProto):
            waiting += ((full, inner) for inner in (*type_.nested_type, *type_.enum_type))


def _no_message(name: str, declared: _Types) -> str:
    names = sorted(
        full
        for full, (_, type_) in declared.items()
        if isinstance(type_, DescriptorProto) and not type_.options.map_entry
    )
    same_end = [full for full in names if full.endswith(f".{name}")]
    compared = names if sum(map(len, names)) <= _MOST_COMPARED else ()
    near = same_end or difflib.get_close_matches(name[:_MOST_NAME], compared, 3, 0.5) or names[:10]
    return f"the descriptor set has no message {name}: it has {', '.join(near[:10]) or 'no messages'}"


def _pool(files: Sequence[FileDescriptorProto], declared: _Types) -> DescriptorPool:
    """Returns the types of the files. Raises BadSchema.

    A file is added behind those whose types it uses; they are found by their types, because a set that was
    reduced names no imports.
    """
    used: dict[int, set[int]] = {number: set() for number in range(len(files))}
    for full, (number, type_) in declared.items():
        used[number] |= set(_used_files(full, type_, declared)) - {number}
    pool = DescriptorPool()
    try:
        for number in TopologicalSorter(used).static_order():
            file = files[number]
            del file.dependency[:], file.public_dependency[:], file.weak_dependency[:]
            file.name = f"{number}.proto"
            pool.AddSerializedFile(file.SerializeToString())
    except (TypeError, CycleError) as error:
        reason = str(error).removeprefix("Couldn't build proto file into descriptor pool: ")
        raise BadSchema(f"the descriptor set is not valid: {reason[:_MOST_REASON]}") from None
    return pool


def _used_files(full: str, type_: _Type, declared: _Types) -> Iterator[int]:
    """Yields the numbers of the files whose types a message uses.

    Raises BadSchema where a type is missing, and for a name that would not be one in Spark's DDL.
    """
    fields = type_.field if isinstance(type_, DescriptorProto) else ()
    for name in (type_.name, *(field.name for field in fields)):
        if len(name) > _MOST_NAME or not (name.isascii() and name.isidentifier()):
            raise BadSchema(f"{full[:_MOST_NAME]} declares {name[:50]!r}, which is no name in Protobuf")
    for field in fields:
        wanted = field.type_name.removeprefix(".")
        if wanted in declared:
            yield declared[wanted][0]
        elif field.type_name.startswith("."):
            raise BadSchema(f"the descriptor set lacks {wanted}, the type of {full}.{field.name}: {_HINT}")
