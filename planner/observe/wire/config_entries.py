"""DescribeConfigs answers, decoded by hand: 10,000 topics have 330,000 entries, which all look alike.

So an entry's value is made once and shared, and what nobody asked for is never built.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

from planner.model.observed import ConfigSource, ConfigValue

FLEXIBLE_FROM = 4
_HAS_TYPE_FROM = 3
_DYNAMIC_TOPIC = 1
_DEFAULT = 5
# Kafka's ConfigSource numbers: 2 and 3 dynamic broker, 4 static broker, 6 and 7 loggers and clients.
_SOURCES = {_DYNAMIC_TOPIC: ConfigSource.TOPIC, _DEFAULT: ConfigSource.DEFAULT}
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")

Config = dict[str, ConfigValue]
# Is this key, with this "is it set on the topic itself", wanted of this topic?
Wants = Callable[[str, bool], bool]


@dataclass(frozen=True, slots=True)
class Described:
    """One resource of the answer; `error` is Kafka's number, and `message` the broker's words."""

    name: str
    error: int
    message: str | None
    config: Config


class Decoder:
    """Shares equal values between all topics it decodes; one thread's."""

    def __init__(self) -> None:
        self._values: dict[tuple[str | None, int, int, int], ConfigValue] = {}
        self._keys: dict[bytes, str] = {}

    def decode(self, answer: memoryview, version: int, wants: Callable[[str], Wants]) -> list[Described]:
        """Entries of topics that `wants` (by topic) says no to are skipped."""
        walk = _Flexible(answer) if version >= FLEXIBLE_FROM else _Plain(answer)
        walk.header()
        walk.skip(4)  # throttle
        return [self._resource(walk, version, wants) for _ in range(walk.length())]

    def _resource(self, walk: "_Flexible | _Plain", version: int, wants: Callable[[str], Wants]) -> Described:
        error = walk.short()
        message = walk.text()
        walk.skip(1)  # resource type
        name = walk.text() or ""
        wanted = wants(name)
        config: Config = {}
        for _ in range(walk.length()):
            self._entry(walk, version, wanted, config)
        walk.tags()
        return Described(name, error, message, config)

    def _entry(self, walk: "_Flexible | _Plain", version: int, wanted: Wants, config: Config) -> None:
        raw_key = walk.raw() or b""
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
        key = self._keys.get(raw_key)
        if key is None:
            key = self._keys[raw_key] = raw_key.decode()
        if wanted(key, source == _DYNAMIC_TOPIC):
            config[key] = self._value(raw_value, source, sensitive, read_only)

    def _value(self, raw: bytes | None, source: int, sensitive: int, read_only: int) -> ConfigValue:
        text = None if raw is None else raw.decode()
        known = (text, source, sensitive, read_only)
        value = self._values.get(known)
        if value is None:
            origin = _SOURCES.get(source, ConfigSource.BROKER)
            value = self._values[known] = ConfigValue(text, origin, bool(sensitive), bool(read_only))
        return value


class _Flexible:
    """Compact lengths, and tagged fields after each structure."""

    def __init__(self, data: memoryview) -> None:
        self._data = bytes(data)
        self._at = 0

    def header(self) -> None:
        self.skip(4)
        self.tags()

    def skip(self, count: int) -> None:
        self._at += count

    def short(self) -> int:
        (value,) = _SHORT.unpack_from(self._data, self._at)
        self._at += 2
        return int(value)

    def three(self) -> bytes:
        start = self._at
        self._at = start + 3
        return self._data[start : start + 3]

    def _varint(self) -> int:
        byte = self._data[self._at]
        self._at += 1
        if byte < 128:
            return byte
        value, shift = byte & 127, 7
        while True:
            byte = self._data[self._at]
            self._at += 1
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
        start = self._at
        self._at = end = start + size - 1
        return self._data[start:end]

    def text(self) -> str | None:
        raw = self.raw()
        return None if raw is None else raw.decode()

    def tags(self) -> None:
        for _ in range(self._varint()):
            self._varint()
            self.skip(self._varint())


class _Plain:
    """Lengths of fixed size, no tags: the versions of older brokers."""

    def __init__(self, data: memoryview) -> None:
        self._data = bytes(data)
        self._at = 0

    def header(self) -> None:
        self.skip(4)

    def skip(self, count: int) -> None:
        self._at += count

    def short(self) -> int:
        (value,) = _SHORT.unpack_from(self._data, self._at)
        self._at += 2
        return int(value)

    def three(self) -> bytes:
        start = self._at
        self._at = start + 3
        return self._data[start : start + 3]

    def length(self) -> int:
        (value,) = _INT.unpack_from(self._data, self._at)
        self._at += 4
        return max(0, int(value))

    def raw(self) -> bytes | None:
        size = self.short()
        if size < 0:
            return None
        start = self._at
        self._at = end = start + size
        return self._data[start:end]

    def text(self) -> str | None:
        raw = self.raw()
        return None if raw is None else raw.decode()

    def tags(self) -> None:
        """There are none."""
