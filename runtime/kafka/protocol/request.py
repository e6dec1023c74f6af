"""Encodes Kafka's primitive types, and defines a request: an API, its versions, a body and a response.

The primitive types are integers, and compact strings, arrays and tagged fields. `FixedWriter` and
`FixedReader` have the same methods for the older versions of a request, which have lengths of fixed size and
no tagged fields. So one request is written once for all its versions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import ClassVar, Protocol, TypeVar

from runtime.kafka.errors import ErrorCode

T = TypeVar("T")

INT8 = struct.Struct(">b")
INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")
_NO_ERROR = ErrorCode.NONE


class Truncated(ValueError):
    """The bytes end before the value does, or hold an impossible value."""


def uvarint(value: int) -> bytes:
    """Encodes an unsigned varint: seven bits a byte, the lowest first."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Writer:
    """A Writer appends the small parts of a request to one buffer."""

    __slots__ = ("buffer",)

    def __init__(self) -> None:
        self.buffer = bytearray()

    def int8(self, value: int) -> None:
        self.buffer += INT8.pack(value)

    def int16(self, value: int) -> None:
        self.buffer += INT16.pack(value)

    def int32(self, value: int) -> None:
        self.buffer += INT32.pack(value)

    def int64(self, value: int) -> None:
        self.buffer += INT64.pack(value)

    def fields(self, kind: struct.Struct, *values: int) -> None:
        """Writes fields of fixed size that follow each other; one call for all is faster."""
        self.buffer += kind.pack(*values)

    def boolean(self, value: bool) -> None:
        self.buffer.append(1 if value else 0)

    def raw(self, value: bytes) -> None:
        self.buffer += value

    def uvarint(self, value: int) -> None:
        self.buffer += uvarint(value)

    def string(self, value: str | None) -> None:
        """Writes a string in the old form: a two-byte length, -1 for null."""
        if value is None:
            self.int16(-1)
            return
        encoded = value.encode()
        self.int16(len(encoded))
        self.buffer += encoded

    def compact_string(self, value: str | None) -> None:
        if value is None:
            self.buffer.append(0)
            return
        encoded = value.encode()
        self.buffer += uvarint(len(encoded) + 1)
        self.buffer += encoded

    def compact_bytes(self, value: bytes) -> None:
        self.buffer += uvarint(len(value) + 1)
        self.buffer += value

    def old_bytes(self, value: bytes) -> None:
        self.int32(len(value))
        self.buffer += value

    def count(self, items: int | None) -> None:
        """Writes the length of a compact array; None is a null array."""
        self.buffer += uvarint(0 if items is None else items + 1)

    def int32s(self, values: tuple[int, ...] | list[int]) -> None:
        self.count(len(values))
        self.buffer += struct.pack(f">{len(values)}i", *values)

    def by_topic(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Writes topics, each with the indexes of its partitions."""
        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        self.count(len(topics))
        for topic, indexes in topics.items():
            self.compact_string(topic)
            self.int32s(indexes)
            self.no_tags()

    def no_tags(self) -> None:
        self.buffer.append(0)


class FixedWriter(Writer):
    """This Writer writes a version that has lengths of fixed size, and no tagged fields."""

    __slots__ = ()

    def compact_string(self, value: str | None) -> None:
        self.string(value)

    def compact_bytes(self, value: bytes) -> None:
        self.old_bytes(value)

    def count(self, items: int | None) -> None:
        self.int32(-1 if items is None else items)

    def no_tags(self) -> None:
        """Writes nothing: such a version has no tags."""


def writer_of(version: int, flexible: int) -> Writer:
    """Returns the writer of a version, where the versions from `flexible` on have compact lengths."""
    return Writer() if version >= flexible else FixedWriter()


_FEW_INT32S = [struct.Struct(f">{count}i") for count in range(8)]  # the replicas of most partitions


class Reader:
    """A Reader reads forward in one buffer, and raises `Truncated` instead of reading past its end."""

    __slots__ = ("buffer", "position")

    def __init__(self, buffer: memoryview, position: int = 0) -> None:
        self.buffer = buffer
        self.position = position

    def take(self, size: int) -> memoryview:
        end = self.position + size
        if size < 0 or end > len(self.buffer):
            raise Truncated(f"{size} bytes wanted at {self.position} of {len(self.buffer)}")
        taken = self.buffer[self.position : end]
        self.position = end
        return taken

    def skip(self, expected: bytes) -> bool:
        """Skips these bytes if they come next, and returns whether they did."""
        end = self.position + len(expected)
        if self.buffer[self.position : end] != expected:
            return False
        self.position = end
        return True

    def int8(self) -> int:
        return self._fixed(INT8)

    def int16(self) -> int:
        return self._fixed(INT16)

    def int32(self) -> int:
        return self._fixed(INT32)

    def int64(self) -> int:
        return self._fixed(INT64)

    def _fixed(self, kind: struct.Struct) -> int:
        value: int = self.fields(kind)[0]
        return value

    def fields(self, kind: struct.Struct) -> tuple[int, ...]:
        """Returns fields of fixed size that follow each other; one call for all is faster."""
        try:
            values = kind.unpack_from(self.buffer, self.position)
        except struct.error as error:
            raise Truncated(str(error)) from error
        self.position += kind.size
        return values

    def boolean(self) -> bool:
        return self.int8() != 0

    def error_code(self) -> ErrorCode:
        code = self.int16()
        return ErrorCode(code) if code else _NO_ERROR  # a call or a lookup of an enum is slow

    def uvarint(self) -> int:
        value = shift = 0
        try:
            while True:
                byte = self.buffer[self.position]
                self.position += 1
                if byte < 0x80:
                    return value | byte << shift
                value |= (byte & 0x7F) << shift
                shift += 7
                if shift > 28:
                    raise Truncated(f"no varint at {self.position}")
        except IndexError:
            raise Truncated(f"no varint at {self.position}") from None

    def uuid(self) -> bytes:
        return bytes(self.take(16))

    def string(self) -> str | None:
        size = self.int16()
        return None if size < 0 else str(self.take(size), "utf-8")

    def old_bytes(self) -> bytes:
        return bytes(self.take(max(0, self.int32())))

    def compact_bytes(self) -> bytes:
        return bytes(self.take(max(0, self.bytes_size())))

    def bytes_size(self) -> int:
        """Returns the length of the bytes that follow; -1 for null."""
        return self.uvarint() - 1

    def nullable_string(self) -> str | None:
        size = self.uvarint()
        return None if size == 0 else str(self.take(size - 1), "utf-8")

    def compact_string(self) -> str:
        return self.nullable_string() or ""

    def count(self) -> int:
        """Returns the length of a compact array; a null one reads as empty."""
        count = self.uvarint() - 1
        if count > len(self.buffer) - self.position:
            raise Truncated(f"an array of {count} items in {len(self.buffer) - self.position} bytes")
        return max(0, count)

    def array(self, item: Callable[[], T]) -> list[T]:
        return [item() for _ in range(self.count())]

    def int32s(self) -> tuple[int, ...]:
        count = self.count()
        if count < len(_FEW_INT32S):
            return self.fields(_FEW_INT32S[count])
        return struct.unpack(f">{count}i", self.take(4 * count))

    def skip_tags(self) -> None:
        if self.position < len(self.buffer) and self.buffer[self.position] == 0:
            self.position += 1
            return
        for _ in range(self.uvarint()):
            self.uvarint()
            self.take(self.uvarint())

    def tags(self) -> dict[int, Reader]:
        """Returns the tagged fields that are present, each with its own reader."""
        found: dict[int, Reader] = {}
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            found[tag] = Reader(self.take(self.uvarint()))
        return found


class FixedReader(Reader):
    """This Reader reads a version that has lengths of fixed size, and no tagged fields."""

    __slots__ = ()

    def bytes_size(self) -> int:
        return self.int32()

    def nullable_string(self) -> str | None:
        return self.string()

    def count(self) -> int:
        count = self.int32()
        if count > len(self.buffer) - self.position:
            raise Truncated(f"an array of {count} items in {len(self.buffer) - self.position} bytes")
        return max(0, count)

    def skip_tags(self) -> None:
        """Reads nothing: such a version has no tags."""


def reader_of(reader: Reader, version: int, flexible: int) -> Reader:
    """Returns a reader of the same bytes for a version; the versions from `flexible` on are compact."""
    return reader if version >= flexible else FixedReader(reader.buffer, reader.position)


Buffer = bytes | bytearray | memoryview
Response_co = TypeVar("Response_co", covariant=True)


class Api(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    END_TXN = 26
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    DESCRIBE_QUORUM = 55
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91


SHORT_ANSWERS = frozenset(
    {
        Api.API_VERSIONS,
        Api.SASL_HANDSHAKE,
        Api.SASL_AUTHENTICATE,
        Api.INIT_PRODUCER_ID,
        Api.END_TXN,
    }
)
"""Requests whose answer does not grow with topics, partitions or records."""


class Request(Protocol[Response_co]):
    """A Request is one request of the Kafka protocol.

    `VERSIONS` is the closed range of supported versions; `FLEXIBLE` is the first one with the flexible
    header.
    """

    API: ClassVar[Api]
    VERSIONS: ClassVar[tuple[int, int]]
    FLEXIBLE: ClassVar[int]

    def body(self, version: int) -> Sequence[Buffer]:
        """Returns the request without its header. Record batches stay in the caller's memory."""
        ...

    def answer(self, version: int, reader: Reader) -> Response_co:
        """Reads the response after its header."""
        ...


def frame(
    api: Api, version: int, correlation_id: int, client_id: str, flexible: bool, body: Sequence[Buffer]
) -> list[Buffer]:
    """Returns the size, the header and the body; only the first two small pieces are joined."""
    header = Writer()
    header.int16(api)
    header.int16(version)
    header.int32(correlation_id)
    header.string(client_id)
    if flexible:
        header.no_tags()
    size = len(header.buffer) + sum(map(len, body))
    return [INT32.pack(size) + header.buffer, *body]
