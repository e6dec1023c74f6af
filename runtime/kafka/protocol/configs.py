"""DescribeConfigs for topics or brokers, for chosen keys or all of them.

10,000 topics have 330,000 entries, and most of them are equal. A broker lists them in the same order for
each topic, so an entry whose bytes equal those at the same place before is the same object: it is not decoded
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from msgspec import Struct

from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.request import Api, Message, Request, Rows

TOPIC, BROKER = 2, 4
DYNAMIC_TOPIC, DEFAULT = 1, 5
"""Sources of a value. 2 and 3 are dynamic broker settings, 4 static ones, 6 and 7 loggers and clients."""


class ConfigEntry(Struct, frozen=True):
    """The `value` of a ConfigEntry is None where the broker keeps it secret."""

    key: str
    value: str | None
    read_only: bool
    source: int
    sensitive: bool

    @property
    def explicit(self) -> bool:
        """Returns whether the value is set on the topic itself."""
        return self.source == DYNAMIC_TOPIC


class Described(Struct, frozen=True):
    """A Described is one resource of the response; `message` is the broker's text about the error."""

    name: str
    error: ErrorCode
    message: str | None
    entries: Sequence[ConfigEntry]


class DescribeConfigsRequest(Request[Sequence[Described]], frozen=True):
    """With `keys` of None this request reads every key."""

    MESSAGE: ClassVar[Message] = Message(
        Api.DESCRIBE_CONFIGS,
        4,
        """
        resources         []
          kind            int8
          name            string
          keys            []string
        _synonyms         bool           = False
        _documentation    bool     3+    = False
        """,
        """
        throttle_ms       int32
        resources         []
          error           error
          message         string?
          _kind           int8
          name            string
          entries         [] -> ConfigEntry  repeated
            key           string
            value         string?
            read_only     bool
            source        int8
            sensitive     bool
            _synonyms     []
              _key        string
              _value      string
              _source     int8
            _type         int8     3+
            _document     string   3+
        """,
        ConfigEntry,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (1, 4)

    kind: int
    names: Sequence[str]
    keys: Sequence[str] | None = None

    def values(self, version: int) -> Any:
        return [(self.kind, name, self.keys) for name in self.names]

    def result(self, _throttle_ms: int, resources: Rows) -> Sequence[Described]:
        return [Described(name, error, message, entries) for error, message, name, entries in resources]
