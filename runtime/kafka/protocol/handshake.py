"""The first messages of a connection: ApiVersions, SaslHandshake, SaslAuthenticate."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from msgspec import Struct

from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.last_decoded import LastDecoded
from runtime.kafka.protocol.layout import Layout
from runtime.kafka.protocol.request import Api, Message, Request, Rows

API_VERSIONS = Message(
    Api.API_VERSIONS,
    flexible=3,
    request="""
        software_name     string  3+
        software_version  string  3+
    """,
    response="""
        error        error
        api_keys     []
          key        int16
          lowest     int16
          highest    int16
        throttle_ms  int32  1+
        tag 2 features []
          name       string
          level      int16
          _min_level int16
    """,
)
_REFUSED = Layout("error error", flexible=1 << 15)


class ApiVersionsResponse(Struct, frozen=True):
    """This response holds the broker's API versions and features.

    `versions` are closed ranges by API key; `features` are the finalized levels of the cluster's features.
    """

    error: ErrorCode
    versions: Mapping[int, tuple[int, int]]
    features: Mapping[str, int]


class ApiVersionsRequest(Request[ApiVersionsResponse], frozen=True):
    """This request has version 3 only; a broker without it answers with error 35 in the form of version 0.

    A response with an error may end after the error. `decoded` keeps the response for the next connection:
    brokers of one version send the same bytes.
    """

    MESSAGE: ClassVar[Message] = API_VERSIONS
    VERSIONS: ClassVar[tuple[int, int]] = (3, 3)

    software_name: str = ""
    software_version: str = ""
    decoded: LastDecoded[tuple[int, ApiVersionsResponse]] | None = None

    def values(self, version: int) -> tuple[str, str]:
        return self.software_name, self.software_version

    def answer(self, version: int, response: memoryview) -> tuple[int, ApiVersionsResponse]:
        begin = self._begin(version, response)
        error, _ = _REFUSED.decode(version, response, begin)
        if error:
            return 0, ApiVersionsResponse(error, {}, {})
        if self.decoded is None:
            return super().answer(version, response)
        decode = partial(super().answer, version, response)
        return self.decoded.value(version, response[begin:], decode)

    def result(
        self, error: ErrorCode, api_keys: Rows, _throttle_ms: int, features: Rows | None
    ) -> ApiVersionsResponse:
        versions = {key: (lowest, highest) for key, lowest, highest in api_keys}
        return ApiVersionsResponse(error, versions, dict(features or ()))


class OldApiVersionsRequest(ApiVersionsRequest, frozen=True):
    """This request has version 0, which every broker answers."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)


class SaslHandshakeResponse(Struct, frozen=True):
    error: ErrorCode
    mechanisms: tuple[str, ...]


class SaslHandshakeRequest(Request[SaslHandshakeResponse], frozen=True):
    MESSAGE: ClassVar[Message] = Message(
        Api.SASL_HANDSHAKE,
        flexible=1 << 15,
        request="mechanism string",
        response="""
            error       error
            mechanisms  []string
        """,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (1, 1)

    mechanism: str

    def values(self, version: int) -> str:
        return self.mechanism

    def result(self, error: ErrorCode, mechanisms: Rows) -> SaslHandshakeResponse:
        return SaslHandshakeResponse(error, tuple(mechanisms))


class SaslAuthenticateResponse(Struct, frozen=True):
    """The `session_lifetime_ms` of this response is 0 if the session does not expire."""

    error: ErrorCode
    message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int


class SaslAuthenticateRequest(Request[SaslAuthenticateResponse], frozen=True):
    MESSAGE: ClassVar[Message] = Message(
        Api.SASL_AUTHENTICATE,
        flexible=2,
        request="auth_bytes bytes",
        response="""
            error        error
            message      string?
            auth_bytes   bytes
            lifetime_ms  int64  1+
        """,
    )
    VERSIONS: ClassVar[tuple[int, int]] = (0, 2)

    auth_bytes: bytes

    def __repr__(self) -> str:
        return "SaslAuthenticateRequest(auth_bytes=<secret>)"

    def values(self, version: int) -> bytes:
        return self.auth_bytes

    def result(
        self, error: ErrorCode, message: str | None, auth_bytes: bytes, lifetime_ms: int
    ) -> SaslAuthenticateResponse:
        return SaslAuthenticateResponse(error, message, auth_bytes, lifetime_ms)
