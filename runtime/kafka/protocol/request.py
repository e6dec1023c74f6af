"""Defines a request of Kafka's protocol: its API, its versions, the types of its fields and its response."""

from __future__ import annotations

import struct
from enum import IntEnum
from functools import cache
from typing import Annotated, Any, ClassVar, Generic, TypeVar, get_args, get_origin

from msgspec import Struct

from runtime.kafka.protocol.layout import INLINE, Buffer, Int32, Layout, Present, Truncated, since, skip_tags

INT32 = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")  # API, version, correlation id, length of the client id
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


class Request(Struct, Generic[Response_co], frozen=True):
    """A Request is one request of the Kafka protocol. See `layout` for the types of fields.

    `FLEXIBLE` is the first version with compact lengths, and `VERSIONS` the closed range that requests of the
    kind are sent in; what a request has in it may need a later one of them, see `versions`.
    The fields of the body are those of the request itself, and the response is of the type in the brackets,
    behind the throttle time in the versions `THROTTLED`. `BODY` and `RESPONSE` are other types: `values` and
    `result` convert them.
    """

    API: ClassVar[Api]
    FLEXIBLE: ClassVar[int]
    VERSIONS: ClassVar[tuple[int, int]]
    THROTTLED: ClassVar[Present | None] = since(0)
    BODY: ClassVar[Any] = None
    RESPONSE: ClassVar[Any] = None

    @property
    def versions(self) -> tuple[int, int]:
        """The closed range of versions that this request can be sent in."""
        return self.VERSIONS

    def values(self, version: int) -> Any:
        return self

    def result(self, value: Any) -> Response_co:
        """Returns what the value of `RESPONSE` says. Raises ValueError for an impossible one."""
        result: Response_co = value
        return result

    def frame(self, version: int, correlation_id: int, client_id: str) -> list[Buffer]:
        """Returns the request with its size and header. Record batches stay in the caller's memory."""
        body = layouts(type(self))[0].encode(version, self.values(version))
        client = client_id.encode()
        header = _HEADER.pack(self.API, version, correlation_id, len(client)) + client
        if version >= self.FLEXIBLE:
            header += b"\0"
        size = len(header) + sum(map(len, body))
        return [INT32.pack(size) + header, *body]

    def answer(self, version: int, response: memoryview) -> tuple[int, Response_co]:
        """Reads a response behind its correlation id: for how many ms the broker throttles, and the result.

        Raises ValueError for bytes that are no such response.
        """
        throttle_ms, value = self.decoded_response(version, response)
        return throttle_ms, self.result(value)

    def decoded_response(self, version: int, response: memoryview) -> tuple[int, Any]:
        """Returns for how many ms the broker throttles, and the value of the response's type."""
        value, _ = layouts(type(self))[1].decode(version, response, self.begin(version, response))
        return value if self.THROTTLED is not None else (getattr(value, "throttle_ms", 0), value)

    def begin(self, version: int, response: memoryview) -> int:
        """Returns where the fields begin. The answer to ApiVersions has no tags before them."""
        if version < self.FLEXIBLE or self.API is Api.API_VERSIONS:
            return INT32.size
        try:
            return skip_tags(response, INT32.size)
        except IndexError as error:
            raise Truncated(str(error)) from error


@cache
def layouts(kind: type[Request[Any]]) -> tuple[Layout, Layout]:
    """Returns the layouts of the body and the response."""
    response = kind.RESPONSE
    if response is None:
        bases = (base for made in kind.__mro__ for base in made.__dict__.get("__orig_bases__", ()))
        response = next(get_args(base)[0] for base in bases if get_origin(base) is Request)
    if kind.THROTTLED is not None:
        response = tuple[Annotated[Int32, kind.THROTTLED], Annotated[response, INLINE]]  # type: ignore[valid-type]
    return Layout(kind.BODY or kind, kind.FLEXIBLE), Layout(response, kind.FLEXIBLE)
