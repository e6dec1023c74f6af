"""Fetches writers' schemas from a schema registry, by the ids of Confluent's wire format.

It uses two documented requests: `GET /schemas/ids/{id}`, and `GET /subjects/{subject}/versions/{version}` for
the schemas that a schema refers to. A schema never changes under its id, so it is fetched once.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import os
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec

from runtime.contract.client.secrets import ClientSecrets, redacted
from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.spec.transform import RegistrySpec
from runtime.sql.formats.encoded import UndecodableValue

T = TypeVar("T")

FRAME = 5  # bytes of Confluent's wire format before the value: a zero and the id
ASK_AGAIN_S = 30.0  # for an id that the registry does not know

_TIMEOUT_S = 10.0
_MOST_BYTES = 4 << 20
_MOST_REFERENCES = 100
_NOT_FOUND = 404


class RegistryUnavailable(Exception):
    """The registry does not answer, or refuses to: the same request may succeed later."""


class UnknownSchema(Exception):
    """The registry has no schema of this id that a flow can read."""


class WriterSchema(NamedTuple):
    """The text of a writer's schema, and of the schemas that it refers to, in the order of their use."""

    text: str
    references: tuple[str, ...] = ()


class _Reference(msgspec.Struct, frozen=True):
    subject: str
    version: int


class _Answer(msgspec.Struct, frozen=True):
    schema: str
    schemaType: str = "AVRO"  # noqa: N815 - the registry's name
    references: list[_Reference] = []


class SchemaRegistry:
    """A client of one registry. Secrets are resolved where it runs.

    `sasl.username` and `sasl.password` are sent as basic authentication, and the `ssl.` files are those of
    the connection, as Confluent's clients do with `SASL_INHERIT`.
    """

    def __init__(
        self,
        spec: RegistrySpec,
        kind: Literal["AVRO", "PROTOBUF"],
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._spec = spec
        self._kind = kind
        self._environ = environ
        self._opener: urllib.request.OpenerDirector | None = None
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}

    async def schema(self, number: int) -> WriterSchema:
        """Returns the schema of an id. Raises RegistryUnavailable, UnknownSchema."""
        return await asyncio.to_thread(self._schema, number)

    def _schema(self, number: int) -> WriterSchema:
        answer = self._get(f"/schemas/ids/{number}", f"schema id {number}")
        references: dict[tuple[str, int], str] = {}
        if self._kind == "AVRO":  # what a schema of Protobuf imports is in the declared descriptors
            self._add(answer.references, references)
        return WriterSchema(answer.schema, tuple(references.values()))

    def _add(self, wanted: list[_Reference], found: dict[tuple[str, int], str]) -> None:
        """Adds schemas that are referred to, those that they refer to first."""
        for one in wanted:
            key = (one.subject, one.version)
            if key in found:
                continue
            if len(found) >= _MOST_REFERENCES:
                raise UnknownSchema(f"a schema refers to more than {_MOST_REFERENCES} others")
            what = f"{one.subject} version {one.version}"
            answer = self._get(
                f"/subjects/{urllib.parse.quote(one.subject, safe='')}/versions/{one.version}", what
            )
            self._add(answer.references, found)
            found[key] = answer.schema

    def _get(self, path: str, what: str) -> _Answer:
        url = self._spec.url.rstrip("/")
        try:
            opener = self._opener or self._open()
            request = urllib.request.Request(url + path, headers=self._headers)  # noqa: S310 - checked in _open
            with opener.open(request, timeout=_TIMEOUT_S) as response:
                content = response.read(_MOST_BYTES + 1)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == _NOT_FOUND:
                raise UnknownSchema(f"the registry has no {what}") from None
            raise RegistryUnavailable(f"{url}: {what}: HTTP status {error.code}") from None
        except (OSError, http.client.HTTPException, ClientSettingsError) as error:
            raise RegistryUnavailable(redacted(f"{url}: {what}: {error}")) from None
        try:
            answer = msgspec.json.decode(content, type=_Answer)
        except msgspec.MsgspecError:
            raise RegistryUnavailable(f"{url}: {what}: the answer is no schema of a registry") from None
        if answer.schemaType.upper() != self._kind:
            raise UnknownSchema(f"{what} is {answer.schemaType}, not {self._kind.capitalize()}")
        return answer

    def _open(self) -> urllib.request.OpenerDirector:
        """Resolves the settings. Raises ClientSettingsError, and OSError for files that can't be read."""
        address = urllib.parse.urlsplit(self._spec.url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ClientSettingsError("registry.url", "is no web address", "write it as https://host:8081")
        port = address.port or (443 if address.scheme == "https" else 80)
        host = f"[{address.hostname}]" if ":" in (address.hostname or "") else address.hostname
        settings = ClientSecrets(self._environ).resolve(f"{host}:{port}", self._spec.client)
        if "sasl.username" in settings:
            pair = f"{settings['sasl.username']}:{settings.get('sasl.password', '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        handlers: list[Any] = [_NoRedirect()]
        if address.scheme == "https":
            context = ssl.create_default_context(cafile=settings.get("ssl.ca.location"))
            if "ssl.certificate.location" in settings:
                context.load_cert_chain(
                    settings["ssl.certificate.location"],
                    settings.get("ssl.key.location"),
                    settings.get("ssl.key.password"),
                )
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)
        return self._opener


def schema_id(value: bytes) -> int | None:
    """Returns the schema id of a value in Confluent's wire format; None for other bytes."""
    if len(value) < FRAME or value[0]:
        return None
    return int.from_bytes(value[1:FRAME], "big")


class _Unknown(NamedTuple):
    why: str
    until: float  # when it is asked for again


class WriterSchemas(Generic[T]):
    """What is known of the schemas of a registry, by their ids: what `read` makes of each."""

    def __init__(
        self, spec: RegistrySpec, kind: Literal["AVRO", "PROTOBUF"], read: Callable[[WriterSchema], T]
    ) -> None:
        self._registry = SchemaRegistry(spec, kind)
        self._read = read
        self._known: dict[int, T] = {}
        self._unknown: dict[int, _Unknown] = {}

    async def fetch(self, values: Iterable[bytes | None]) -> None:
        """Fetches the schemas of these values that are not known. Raises RegistryUnavailable."""
        now = time.monotonic()
        ids = {schema_id(value) for value in values if value is not None}
        for number in sorted(one for one in ids if one is not None and one not in self._known):
            if (unknown := self._unknown.get(number)) is not None and unknown.until >= now:
                continue
            try:
                self._known[number] = self._read(await self._registry.schema(number))
            except UnknownSchema as error:
                self._unknown[number] = _Unknown(str(error), now + ASK_AGAIN_S)

    def of(self, value: bytes) -> T:
        """Returns what is known of a value's schema, which was fetched. Raises UndecodableValue."""
        number = schema_id(value)
        if number is None:
            raise UndecodableValue("it has no schema id of a registry")
        if number in self._known:
            return self._known[number]
        raise UndecodableValue(self._unknown[number].why)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirections: credentials go to the declared address alone."""

    def redirect_request(self, *_: Any) -> None:
        return None
