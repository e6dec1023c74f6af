"""DescribeConfigs for topics or brokers, for chosen keys or all of them.

10,000 topics have 330,000 entries, and most of them are equal. A broker lists them in the same order for
each topic, so an entry whose bytes equal those at the same place before is the same object: it is not decoded
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

from msgspec import Struct

from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.last_decoded import LastDecoded
from runtime.kafka.protocol.layout import REPEATED, Int8, Skipped, since
from runtime.kafka.protocol.request import INT32, Api, Request

TOPIC, BROKER = 2, 4
DYNAMIC_TOPIC, DEFAULT = 1, 5
"""Sources of a value. 2 and 3 are dynamic broker settings, 4 static ones, 6 and 7 loggers and clients."""


class ConfigEntry(Struct, frozen=True):
    """The `value` of a ConfigEntry is None where the broker keeps it secret."""

    key: str
    value: str | None
    read_only: bool
    source: Int8
    sensitive: bool
    _synonyms: ClassVar[Sequence[tuple[str, str | None, Int8]]]
    _type: ClassVar[Annotated[Int8, since(3)]]
    _documentation: ClassVar[Annotated[str | None, since(3)]]

    @property
    def explicit(self) -> bool:
        """Returns whether the value is set on the topic itself."""
        return self.source == DYNAMIC_TOPIC


class Described(Struct, frozen=True):
    """A Described is one resource of the response; `message` is the broker's text about the error."""

    error: ErrorCode
    message: str | None
    _type: ClassVar[Int8]
    name: str
    entries: Annotated[Sequence[ConfigEntry], REPEATED]


DecodedConfigs = LastDecoded[tuple[int, Sequence[Described]]]
"""What the last response to each request described, behind the time that the broker throttles."""


class DescribeConfigsRequest(Request[Sequence[Described]], frozen=True):
    """With `keys` of None this request reads every key.

    `decoded` keeps what was described from one response to the next: brokers repeat it until a setting
    changes.
    """

    API = Api.DESCRIBE_CONFIGS
    FLEXIBLE = 4
    VERSIONS = (1, 4)
    BODY = tuple[
        Sequence[tuple[Int8, str, Sequence[str]]],  # the type and the name of each resource, and its keys
        Skipped[bool],  # the synonyms
        Annotated[Skipped[bool], since(3)],  # the documentation
    ]

    kind: int
    names: Sequence[str]
    keys: Sequence[str] | None = None
    decoded: DecodedConfigs | None = None

    def answer(self, version: int, response: memoryview) -> tuple[int, Sequence[Described]]:
        if self.decoded is None:
            return super().answer(version, response)
        keys = None if self.keys is None else tuple(self.keys)
        decode = partial(super().answer, version, response)
        request = version, self.kind, tuple(self.names), keys
        return self.decoded.value(request, response[INT32.size :], decode)

    def values(self, version: int) -> Any:
        return ([(self.kind, name, self.keys) for name in self.names],)
