"""This module encodes DescribeConfigs v1 to v4 for topics or brokers, for chosen keys or all of them.

Responses are decoded by hand, because 10,000 topics have 330,000 entries, and most entries are equal. A
broker lists them in the same order for each topic, so an entry is first compared with the bytes of the entry
at the same position before. If they are equal, nothing is decoded or built again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import ClassVar, Generic, TypeVar

from msgspec import Struct

from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.request import Api, Buffer, Reader, Truncated, writer_of

TOPIC, BROKER = 2, 4
DYNAMIC_TOPIC, DEFAULT = 1, 5
"""Sources of a value. 2 and 3 are dynamic broker settings, 4 static ones, 6 and 7 loggers and clients."""

FLEXIBLE_FROM = 4
_HAS_TYPE_FROM = 3
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")

V = TypeVar("V")
# Returns whether an entry is wanted, from its key and from whether it is set on the topic itself.
Wants = Callable[[str, bool], bool]
# Text, source, whether it is sensitive, and whether it is read-only → the value that the caller stores.
MakeValue = Callable[[str | None, int, bool, bool], V]


class Described(Struct, Generic[V], frozen=True):
    """A Described is one resource of the response; `message` is the broker's text about the error."""

    name: str
    error: ErrorCode
    message: str | None
    config: dict[str, V]


class DescribeConfigsResponse(Struct, Generic[V], frozen=True):
    throttle_ms: int
    resources: tuple[Described[V], ...]


class DescribeConfigsRequest(Struct, Generic[V], frozen=True):
    """With `keys` of None this request reads every key.

    Entries that `wants` (by resource) rejects are skipped.
    """

    API: ClassVar[Api] = Api.DESCRIBE_CONFIGS
    VERSIONS: ClassVar[tuple[int, int]] = (1, 4)
    FLEXIBLE: ClassVar[int] = FLEXIBLE_FROM

    kind: int
    names: Sequence[str]
    keys: Sequence[str] | None
    wants: Callable[[str], Wants]
    decoder: Decoder[V]

    def body(self, version: int) -> list[Buffer]:
        writer = writer_of(version, self.FLEXIBLE)
        writer.count(len(self.names))
        for name in self.names:
            writer.int8(self.kind)
            writer.compact_string(name)
            writer.count(None if self.keys is None else len(self.keys))
            for key in self.keys or ():
                writer.compact_string(key)
            writer.no_tags()
        writer.boolean(False)  # no synonyms
        if version >= _HAS_TYPE_FROM:
            writer.boolean(False)  # no documentation
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> DescribeConfigsResponse[V]:
        throttle_ms = reader.int32()
        resources = self.decoder.decode(reader.buffer[reader.position :], version, self.wants)
        return DescribeConfigsResponse(throttle_ms, tuple(resources))


class _Entry(Struct, Generic[V], frozen=True):
    raw: bytes  # an entry is self-delimiting: data that begins with these bytes holds this entry
    key: str
    explicit: bool
    value: V


class Decoder(Generic[V]):
    """A Decoder shares equal values between all topics that it decodes. One event loop uses it."""

    def __init__(self, make: MakeValue[V]) -> None:
        self._make = make
        self._values: dict[tuple[str | None, int, int, int], V] = {}
        self._usual: list[_Entry[V]] = []
        self._version = -1

    def decode(self, answer: memoryview, version: int, wants: Callable[[str], Wants]) -> list[Described[V]]:
        """Decodes a response, from its resources on."""
        if version != self._version:  # another broker, whose entries have another form
            self._version = version
            self._usual.clear()
        walk = _Flexible(answer) if version >= FLEXIBLE_FROM else _Fixed(answer)
        try:
            found = [self._resource(walk, version, wants) for _ in range(walk.length())]
        except (struct.error, IndexError, ValueError) as wrong:
            raise Truncated(f"the entries end too soon: {wrong}") from None
        if walk.at > len(answer):
            raise Truncated(f"{walk.at} bytes of entries in {len(answer)}")
        return found

    def _resource(
        self, walk: _Flexible | _Fixed, version: int, wants: Callable[[str], Wants]
    ) -> Described[V]:
        error = ErrorCode(walk.short())
        message = walk.text()
        walk.skip(1)  # resource type
        name = walk.text() or ""
        wanted = wants(name)
        config: dict[str, V] = {}
        usual = self._usual
        for place in range(walk.length()):
            if place < len(usual) and walk.passes(usual[place].raw):
                entry = usual[place]
            else:
                entry = self._entry(walk, version)
                usual[place : place + 1] = [entry]
            if wanted(entry.key, entry.explicit):
                config[entry.key] = entry.value
        walk.tags()
        return Described(name, error, message, config)

    def _entry(self, walk: _Flexible | _Fixed, version: int) -> _Entry[V]:
        start = walk.at
        key = walk.text() or ""
        raw_value = walk.raw()
        read_only, source, sensitive = walk.three()
        for _ in range(walk.length()):
            walk.raw()
            walk.raw()
            walk.skip(1)
            walk.tags()
        if version >= _HAS_TYPE_FROM:
            walk.skip(1)
            walk.raw()
        walk.tags()
        value = self._value(raw_value, source, sensitive, read_only)
        return _Entry(walk.since(start), key, source == DYNAMIC_TOPIC, value)

    def _value(self, raw: bytes | None, source: int, sensitive: int, read_only: int) -> V:
        text = None if raw is None else raw.decode()
        known = (text, source, sensitive, read_only)
        value = self._values.get(known)
        if value is None:
            value = self._values[known] = self._make(text, source, bool(sensitive), bool(read_only))
        return value


class _Walk:
    """A _Walk reads the bytes of a response from the front."""

    def __init__(self, data: memoryview) -> None:
        self._data = bytes(data)
        self.at = 0

    def passes(self, expected: bytes) -> bool:
        """Skips exactly these bytes and returns True, or returns False if other bytes come next."""
        if not self._data.startswith(expected, self.at):
            return False
        self.at += len(expected)
        return True

    def since(self, start: int) -> bytes:
        return self._data[start : self.at]

    def skip(self, count: int) -> None:
        self.at += count

    def short(self) -> int:
        (value,) = _SHORT.unpack_from(self._data, self.at)
        self.at += 2
        return int(value)

    def three(self) -> bytes:
        start = self.at
        self.at = start + 3
        return self._data[start : start + 3]


class _Flexible(_Walk):
    """This walk reads compact lengths, and tagged fields after each structure."""

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def length(self) -> int:
        return max(0, self._varint() - 1)

    def raw(self) -> bytes | None:
        size = self._varint()
        if size == 0:
            return None
        start = self.at
        self.at = end = start + size - 1
        return self._data[start:end]

    def text(self) -> str | None:
        raw = self.raw()
        return None if raw is None else raw.decode()

    def tags(self) -> None:
        for _ in range(self._varint()):
            self._varint()
            self.skip(self._varint())


class _Fixed(_Walk):
    """This walk reads lengths of fixed size, and no tags: the versions of older brokers."""

    def length(self) -> int:
        (value,) = _INT.unpack_from(self._data, self.at)
        self.at += 4
        return max(0, int(value))

    def raw(self) -> bytes | None:
        size = self.short()
        if size < 0:
            return None
        start = self.at
        self.at = end = start + size
        return self._data[start:end]

    def text(self) -> str | None:
        raw = self.raw()
        return None if raw is None else raw.decode()

    def tags(self) -> None:
        """Reads nothing: these versions have no tags."""
