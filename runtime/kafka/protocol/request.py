"""This module defines a request: an API, its supported versions, a body, and the reader of its response."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import ClassVar, Protocol, TypeVar

from runtime.kafka.protocol.fields import INT32, Reader, Writer

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
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    END_TXN = 26
    DESCRIBE_ACLS = 29
    DESCRIBE_CONFIGS = 32
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    ELECT_LEADERS = 43
    ALTER_PARTITION_REASSIGNMENTS = 45
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    DESCRIBE_QUORUM = 55
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66


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
