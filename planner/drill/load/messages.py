"""Makes messages of Protobuf for a declared schema. The same random numbers give the same messages.

Every field is set, and of a oneof its first member: a value shows what an expression makes of content.
"""

from collections.abc import Callable, Iterable
from random import Random

from planner.drill.load.ddl import UnknownType
from runtime.sql.formats.encoded import BadSchema
from runtime.sql.formats.protobuf_schema import (
    FIXED_FORMS,
    SIZED_TYPES,
    TIMESTAMP,
    ZIGZAG,
    MessageType,
    ProtobufField,
    ProtobufSchema,
    ProtobufType,
    ddl_of,
    read_schema,
    wire_of,
)
from runtime.sql.formats.protobuf_wire import (
    written_varint,
)

_SINCE_S = 1_767_225_600  # the first of January 2026
_YEAR_S = 365 * 86_400
_MOST_NUMBER = 1_000_000
_MOST_ITEMS = 3


def protobuf_maker(schema: str) -> Callable[[Random], bytes]:
    """Returns a function that makes messages of a schema. Raises UnknownType."""
    try:
        ddl_of(schema)  # names what a transform can't read, such as a message that contains itself
        known = read_schema(schema)
    except BadSchema as wrong:
        raise UnknownType(f"no schema of Protobuf: {wrong}") from None
    return lambda random: _message(known, known.root, random)


def _message(schema: ProtobufSchema, message: MessageType, random: Random) -> bytes:
    parts: list[bytes] = []
    for one in _first_of_each_oneof(message.fields):
        for _ in range(random.randint(1, _MOST_ITEMS) if one.repeated else 1):
            content = _content(schema, one, random)
            size = written_varint(len(content)) if one.type in SIZED_TYPES else b""
            parts += (written_varint(one.number << 3 | wire_of(one.type)), size, content)
    return b"".join(parts)


def _first_of_each_oneof(fields: Iterable[ProtobufField]) -> Iterable[ProtobufField]:
    seen: set[int] = set()
    for one in fields:
        if one.oneof is None or one.oneof not in seen:
            yield one
        if one.oneof is not None:
            seen.add(one.oneof)


def _content(schema: ProtobufSchema, one: ProtobufField, random: Random) -> bytes:
    """Returns the encoding of a value, without the size that stands before some."""
    match one.type:
        case ProtobufType.MESSAGE if one.of == TIMESTAMP:
            return b"\x08" + written_varint(_SINCE_S + random.randrange(_YEAR_S))
        case ProtobufType.MESSAGE:
            return _message(schema, schema.message(one, one.name), random)
        case ProtobufType.STRING:
            return f"{one.name}-{random.randrange(100_000)}".encode()
        case ProtobufType.BYTES:
            return random.randbytes(8)
        case ProtobufType.BOOL:
            return random.choice((b"\x00", b"\x01"))
        case ProtobufType.ENUM:
            return written_varint(random.choice([*schema.enum(one, one.name).symbols]))
        case kind if kind in FIXED_FORMS:
            number = random.randrange(_MOST_NUMBER)
            is_whole = kind not in (ProtobufType.FLOAT, ProtobufType.DOUBLE)
            return FIXED_FORMS[kind][1].pack(number if is_whole else number / 4)
        case kind:
            return written_varint(random.randrange(_MOST_NUMBER) << (kind in ZIGZAG))
