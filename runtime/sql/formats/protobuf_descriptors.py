"""Reduces a Protobuf descriptor set to what one message needs.

The set of a company may have megabytes and change every day. A job gets the message with all messages and
enums of its fields: its settings stay small, and a change of another message changes no plan.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.message import DecodeError


def needed_descriptors(data: bytes, message: str) -> bytes:
    """Returns the files of a descriptor set with the declarations that a message needs, and no others.

    Bytes that are no descriptor set, or one without the message, are returned as they are: `ProtobufSchema`
    says what is wrong with them.
    """
    try:
        files = FileDescriptorSet.FromString(data).file
    except DecodeError:
        return data
    declared = {
        _full_name(file, type_): type_
        for file in reversed(files)
        for type_ in (*file.message_type, *file.enum_type)
    }
    needed: set[str] = set()
    wanted = [message.removeprefix(".")]
    while wanted:
        name = wanted.pop()
        while name and name not in declared:  # the declaration at the top of a file, which may hold the type
            name = name.rpartition(".")[0]
        if name and name not in needed:
            needed.add(name)
            if isinstance(type_ := declared[name], DescriptorProto):
                wanted += _types_of(type_)
    if not needed:
        return data
    reduced = FileDescriptorSet(file=[_reduced(file, needed) for file in files])
    declaring = FileDescriptorSet(file=[file for file in reduced.file if file.message_type or file.enum_type])
    reduced_set: bytes = declaring.SerializeToString(deterministic=True)
    return reduced_set


def _full_name(file: FileDescriptorProto, type_: DescriptorProto | EnumDescriptorProto) -> str:
    return f"{file.package}.{type_.name}" if file.package else str(type_.name)


def _types_of(message: DescriptorProto) -> Iterator[str]:
    """Yields the types of a message's fields, and those of the messages that are declared in it."""
    for field in message.field:
        yield field.type_name.removeprefix(".")
    for inner in message.nested_type:
        yield from _types_of(inner)


def _reduced(file: FileDescriptorProto, needed: set[str]) -> FileDescriptorProto:
    reduced = FileDescriptorProto(
        name=file.name,
        package=file.package,
        message_type=[type_ for type_ in file.message_type if _full_name(file, type_) in needed],
        enum_type=[type_ for type_ in file.enum_type if _full_name(file, type_) in needed],
    )
    if file.HasField("syntax"):
        reduced.syntax = file.syntax
    if file.HasField("edition"):
        reduced.edition = file.edition
        reduced.options.features.CopyFrom(file.options.features)
    return reduced
