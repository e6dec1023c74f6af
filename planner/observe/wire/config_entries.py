"""DescribeConfigs answers, decoded by hand: 10,000 topics have 330,000 entries, which all look alike.

A broker lists them in the same order for each, so an entry is first compared with the bytes of the one that
stood in its place before; most are the same, and nothing is decoded nor built again.
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


@dataclass(frozen=True, slots=True)
class _Entry:
    raw: bytes  # it tells its own end: what begins with these bytes is this entry
    key: str
    explicit: bool
    value: ConfigValue


class Decoder:
    """Shares equal values between all topics it decodes; one thread's."""

    def __init__(self) -> None:
        self._values: dict[tuple[str | None, int, int, int], ConfigValue] = {}
        self._usual: list[_Entry] = []
        self._version = -1

    def decode(self, answer: memoryview, version: int, wants: Callable[[str], Wants]) -> list[Described]:
        """Entries of topics that `wants` (by topic) says no to are skipped."""
        if version != self._version:  # another broker, whose entries look otherwise
            self._version = version
            self._usual.clear()
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

    def _entry(self, walk: "_Flexible | _Plain", version: int) -> _Entry:
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
        return _Entry(walk.since(start), key, source == _DYNAMIC_TOPIC, value)

    def _value(self, raw: bytes | None, source: int, sensitive: int, read_only: int) -> ConfigValue:
        text = None if raw is None else raw.decode()
        known = (text, source, sensitive, read_only)
        value = self._values.get(known)
        if value is None:
            origin = _SOURCES.get(source, ConfigSource.BROKER)
            value = self._values[known] = ConfigValue(text, origin, bool(sensitive), bool(read_only))
        return value


class _Walk:
    """Over the bytes of an answer, from its front."""

    def __init__(self, data: memoryview) -> None:
        self._data = bytes(data)
        self.at = 0

    def passes(self, expected: bytes) -> bool:
        """Whether exactly these bytes come next; if so, they are behind us."""
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
    """Compact lengths, and tagged fields after each structure."""

    def header(self) -> None:
        self.skip(4)
        self.tags()

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


class _Plain(_Walk):
    """Lengths of fixed size, no tags: the versions of older brokers."""

    def header(self) -> None:
        self.skip(4)

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
        """There are none."""
