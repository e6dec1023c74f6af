"""This module encodes the first requests of a connection: ApiVersions, SaslHandshake, SaslAuthenticate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from msgspec import Struct

from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.last_decoded import LastDecoded
from runtime.kafka.protocol.request import Api, Buffer, FixedReader, Reader, Writer, reader_of, writer_of

NEVER = 1 << 15


class ApiVersionsResponse(Struct, frozen=True):
    """This response holds the broker's API versions and features.

    `versions` are closed ranges by API key; `features` are the finalized levels of the cluster's features.
    """

    error: ErrorCode
    versions: Mapping[int, tuple[int, int]]
    features: Mapping[str, int]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class ApiVersionsRequest:
    """This request has version 3 only; a broker without it answers with error 35 in the form of version 0.

    `decoded` keeps the response for the next connection: brokers of one version send the same bytes.
    """

    API: ClassVar[Api] = Api.API_VERSIONS
    VERSIONS: ClassVar[tuple[int, int]] = (3, 3)
    FLEXIBLE: ClassVar[int] = 3

    software_name: str
    software_version: str
    decoded: LastDecoded[ApiVersionsResponse] | None = field(default=None, repr=False, compare=False)

    def body(self, version: int) -> list[Buffer]:
        writer = Writer()
        writer.compact_string(self.software_name)
        writer.compact_string(self.software_version)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> ApiVersionsResponse:
        if self.decoded is None:
            return self._decode(reader)
        encoded = reader.buffer[reader.position :]
        return self.decoded.value(version, encoded, lambda: self._decode(reader))

    def _decode(self, reader: Reader) -> ApiVersionsResponse:
        error = reader.error_code()
        if error is ErrorCode.UNSUPPORTED_VERSION:
            return ApiVersionsResponse(error, {}, {})
        versions = {}
        for _ in range(reader.count()):
            api = reader.int16()
            versions[api] = (reader.int16(), reader.int16())
            reader.skip_tags()
        throttle_ms = reader.int32()
        tags = reader.tags()
        return ApiVersionsResponse(error, versions, _features(tags[2]) if 2 in tags else {}, throttle_ms)


class OldApiVersionsRequest(Struct, frozen=True):
    """This request has version 0, which every broker answers.

    A response with an error may end after the error.
    """

    API: ClassVar[Api] = Api.API_VERSIONS
    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE: ClassVar[int] = NEVER

    def body(self, version: int) -> list[Buffer]:
        return []

    def answer(self, version: int, reader: Reader) -> ApiVersionsResponse:
        fixed = FixedReader(reader.buffer, reader.position)
        error = ErrorCode(fixed.int16())
        if error:
            return ApiVersionsResponse(error, {}, {})
        versions = {}
        for _ in range(fixed.count()):
            api = fixed.int16()
            versions[api] = (fixed.int16(), fixed.int16())
        return ApiVersionsResponse(error, versions, {})


def _features(reader: Reader) -> dict[str, int]:
    features = {}
    for _ in range(reader.count()):
        name = reader.compact_string()
        features[name] = reader.int16()
        reader.int16()
        reader.skip_tags()
    return features


class SaslHandshakeResponse(Struct, frozen=True):
    throttle_ms: ClassVar[int] = 0

    error: ErrorCode
    mechanisms: tuple[str, ...]


class SaslHandshakeRequest(Struct, frozen=True):
    API: ClassVar[Api] = Api.SASL_HANDSHAKE
    VERSIONS: ClassVar[tuple[int, int]] = (1, 1)
    FLEXIBLE: ClassVar[int] = NEVER

    mechanism: str

    def body(self, version: int) -> list[Buffer]:
        writer = Writer()
        writer.string(self.mechanism)
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> SaslHandshakeResponse:
        error = reader.error_code()
        mechanisms = [reader.string() or "" for _ in range(reader.int32())]
        return SaslHandshakeResponse(error, tuple(mechanisms))


class SaslAuthenticateResponse(Struct, frozen=True):
    throttle_ms: ClassVar[int] = 0

    error: ErrorCode
    message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int


class SaslAuthenticateRequest(Struct, frozen=True):
    API: ClassVar[Api] = Api.SASL_AUTHENTICATE
    VERSIONS: ClassVar[tuple[int, int]] = (0, 2)
    FLEXIBLE: ClassVar[int] = 2

    auth_bytes: bytes

    def __repr__(self) -> str:
        return "SaslAuthenticateRequest(auth_bytes=<secret>)"

    def body(self, version: int) -> list[Buffer]:
        writer = writer_of(version, self.FLEXIBLE)
        writer.compact_bytes(self.auth_bytes)
        writer.no_tags()
        return [writer.buffer]

    def answer(self, version: int, reader: Reader) -> SaslAuthenticateResponse:
        reader = reader_of(reader, version, self.FLEXIBLE)
        error = reader.error_code()
        message = reader.nullable_string()
        auth_bytes = reader.compact_bytes()
        lifetime = reader.int64() if version >= 1 else 0
        reader.skip_tags()
        return SaslAuthenticateResponse(error, message, auth_bytes, lifetime)
