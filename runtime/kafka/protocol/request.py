"""Defines a request of Kafka's protocol: its message, its values, and what its response says."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, ClassVar, Generic, TypeVar

from msgspec import Struct

from runtime.kafka.protocol.layout import Buffer, Layout

INT32 = struct.Struct(">i")
_TAGS = Layout("", flexible=1)  # what stands between the correlation id and the fields
_HEADER = struct.Struct(">hhih")  # API, version, correlation id, length of the client id
Response_co = TypeVar("Response_co", covariant=True)
Rows = Sequence[Any]
"""The items of an array, each with its values in the order of the message's table."""


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
    CONSUMER_GROUP_DESCRIBE = 69
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


class Message:
    """One API of Kafka: the tables of its request and its response, see `layout`.

    `flexible` is the first version with compact lengths. Of `classes` the response makes its items.
    """

    def __init__(
        self, api: Api, flexible: int, request: str, response: str, *classes: Callable[..., Any]
    ) -> None:
        self.api = api
        self.flexible = flexible
        self.request = Layout(request, flexible)
        self.response = Layout(response, flexible, classes)


class Request(Struct, Generic[Response_co], frozen=True):
    """A Request is one request of the Kafka protocol. `VERSIONS` is the closed range that it is sent in."""

    MESSAGE: ClassVar[Message]
    VERSIONS: ClassVar[tuple[int, int]]

    @property
    def api(self) -> Api:
        return self.MESSAGE.api

    def values(self, version: int) -> Any:
        """Returns the values of the request's table; None where all of its fields have defaults."""
        return None

    def result(self, *values: Any, **_: Any) -> Response_co:
        """Returns what the values of the response's table say."""
        raise NotImplementedError

    def frame(self, version: int, correlation_id: int, client_id: str) -> list[Buffer]:
        """Returns the request with its size and header. Record batches stay in the caller's memory."""
        body = self.MESSAGE.request.encode(version, self.values(version))
        client = client_id.encode()
        header = _HEADER.pack(self.api, version, correlation_id, len(client)) + client
        if version >= self.MESSAGE.flexible:
            header += b"\0"
        size = len(header) + sum(map(len, body))
        return [INT32.pack(size) + header, *body]

    def answer(self, version: int, response: memoryview) -> tuple[int, Response_co]:
        """Reads a response behind its correlation id: for how many ms the broker throttles, and the result.

        Raises ValueError for bytes that are no such response.
        """
        begin = self._begin(version, response)
        values, _ = self.MESSAGE.response.decode(version, response, begin)
        throttled_at = self.MESSAGE.response.throttled_at
        return 0 if throttled_at is None else values[throttled_at], self.result(*values)

    def _begin(self, version: int, response: memoryview) -> int:
        """Returns where the fields begin. The answer to ApiVersions has no tags before them."""
        tagged = version >= self.MESSAGE.flexible and self.api is not Api.API_VERSIONS
        _, begin = _TAGS.decode(tagged, response, INT32.size)
        return begin
