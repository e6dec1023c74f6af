"""The first messages of a connection: ApiVersions, SaslHandshake, SaslAuthenticate."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated

from msgspec import Struct

from runtime.kafka.errors import ErrorCode
from runtime.kafka.protocol.last_decoded import LastDecoded
from runtime.kafka.protocol.layout import KEY, VALUE, EntryOrder, Int16, Int32, Int64, Layout, since, tag
from runtime.kafka.protocol.request import Api, Request

_ERROR = Layout(ErrorCode)


class ApiVersionsResponse(Struct, frozen=True):
    """This response holds the broker's API versions and features.

    `versions` are closed ranges by API key; `features` are the finalized levels of the cluster's features.
    """

    error: ErrorCode
    versions: Mapping[Int16, tuple[Int16, Int16]] = {}
    throttle_ms: Annotated[Int32, since(1)] = 0
    features: Annotated[Mapping[str, Int16], tag(2), EntryOrder(KEY, VALUE, Int16)] = {}


class ApiVersionsRequest(Request[ApiVersionsResponse], frozen=True):
    """This request has version 3; a broker without it answers with error 35 in the form of version 0.

    Without a name of the software it has version 0, which every broker answers. A response with an error may
    end after the error. `decoded` keeps the response for the next connection:
    brokers of one version send the same bytes.
    """

    API = Api.API_VERSIONS
    FLEXIBLE = 3
    VERSIONS = (0, 3)
    THROTTLED = None
    BODY = tuple[Annotated[str, since(3)], Annotated[str, since(3)]]

    software_name: str = ""
    software_version: str = ""
    decoded: LastDecoded[tuple[int, ApiVersionsResponse]] | None = None

    @property
    def versions(self) -> tuple[int, int]:
        return (3, 3) if self.software_name else (0, 0)

    def values(self, version: int) -> tuple[str, str]:
        return self.software_name, self.software_version

    def answer(self, version: int, response: memoryview) -> tuple[int, ApiVersionsResponse]:
        begin = self.begin(version, response)
        error, _ = _ERROR.decode(version, response, begin)
        if error:
            return 0, ApiVersionsResponse(error)
        if self.decoded is None:
            return super().answer(version, response)
        decode = partial(super().answer, version, response)
        return self.decoded.value(version, response[begin:], decode)


class SaslHandshakeResponse(Struct, frozen=True):
    error: ErrorCode
    mechanisms: tuple[str, ...]


class SaslHandshakeRequest(Request[SaslHandshakeResponse], frozen=True):
    API = Api.SASL_HANDSHAKE
    FLEXIBLE = 1 << 15
    VERSIONS = (1, 1)
    THROTTLED = None

    mechanism: str


class SaslAuthenticateResponse(Struct, frozen=True):
    """The `session_lifetime_ms` of this response is 0 if the session does not expire."""

    error: ErrorCode
    message: str | None
    auth_bytes: bytes
    session_lifetime_ms: Annotated[Int64, since(1)]


class SaslAuthenticateRequest(Request[SaslAuthenticateResponse], frozen=True):
    API = Api.SASL_AUTHENTICATE
    FLEXIBLE = 2
    VERSIONS = (0, 2)
    THROTTLED = None

    auth_bytes: bytes

    def __repr__(self) -> str:
        return "SaslAuthenticateRequest(auth_bytes=<secret>)"
