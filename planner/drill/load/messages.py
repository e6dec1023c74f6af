"""Makes messages of Protobuf for a declared schema. The same random numbers give the same messages.

Every field is set, and of a oneof its first member: a value shows what an expression makes of content.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from planner.drill.load.ddl import UnknownType
from planner.drill.load.values import scalar
from runtime.sql.formats.encoded import BadSchema
from runtime.sql.formats.protobuf_schema import TIMESTAMP, ddl_of, entry_of, read_schema

_SINCE_S = 1_767_225_600  # the first of January 2026
_YEAR_S = 365 * 86_400
# The kind of each type that is no whole number.
_KINDS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_BOOL: "boolean",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_DOUBLE: "double",
}
_MOST_ITEMS = 3


def protobuf_maker(schema: str) -> Callable[[Random], bytes]:
    """Returns a function that makes messages of a schema. Raises UnknownType."""
    try:
        ddl_of(schema)  # names what a transform can't read, such as a message that contains itself
        parse = read_schema(schema).parse
    except BadSchema as wrong:
        raise UnknownType(f"no schema of Protobuf: {wrong}") from None

    def make(random: Random) -> bytes:
        message = parse(b"")
        _fill(message, random)
        data: bytes = message.SerializeToString(deterministic=True)
        return data

    return make


def _fill(message: Any, random: Random) -> None:
    """Sets every field of a message."""
    for field in message.DESCRIPTOR.fields:
        oneof = field.containing_oneof
        if oneof is not None and oneof.fields[0] is not field:
            continue
        value, entry = getattr(message, field.name), entry_of(field)
        times = random.randint(1, _MOST_ITEMS) if field.is_repeated else 1
        for _ in range(times):
            if entry is not None:
                key, item = (entry.fields_by_name[name] for name in ("key", "value"))
                if item.message_type is None:
                    value[_scalar(key, random)] = _scalar(item, random)
                else:
                    _fill_message(value[_scalar(key, random)], random)
            elif field.message_type is not None:
                inner = value.add() if field.is_repeated else value
                inner.SetInParent()
                _fill_message(inner, random)
            elif field.is_repeated:
                value.append(_scalar(field, random))
            else:
                setattr(message, field.name, _scalar(field, random))


def _fill_message(message: Any, random: Random) -> None:
    if message.DESCRIPTOR.full_name == TIMESTAMP:
        message.seconds = _SINCE_S + random.randrange(_YEAR_S)
    else:
        _fill(message, random)


def _scalar(field: FieldDescriptor, random: Random) -> Any:
    if field.type == FieldDescriptor.TYPE_ENUM:
        return random.choice(field.enum_type.values).number
    return scalar(_KINDS.get(field.type, "long"), field.name, random)
