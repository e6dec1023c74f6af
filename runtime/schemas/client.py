"""A client of a schema registry that speaks Confluent's REST API.

A registry is another system: answers have a limit of bytes and of time, redirections are refused because
credentials go to the declared address alone, and secrets are kept out of errors. A schema never changes under
its id.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import io
import json
import os
import re
import socket
import ssl
import threading
import time
import urllib.parse
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import msgspec

from runtime.contract.client.secrets import ClientSecrets, redacted, registry_address
from runtime.contract.client.settings import ClientSettingsError
from runtime.contract.records.schemas import RegisteredSchema, Schema, SchemaNumber
from runtime.contract.spec.schemas import RegistrySpec
from runtime.schemas.versions import SchemaVersion

CONNECTIONS = 16

_TIMEOUT_S = 10.0
_LIST_S = 600.0  # for all schemas
_MOST_BYTES = 4 << 20
_MOST_LIST_BYTES = 64 << 20
_PAGE = 1000  # schemas; what registries allow at most
_MOST_VERSIONS = 200_000
_MOST_CONTEXTS = 20  # whose ids of a GUID are compared
_MOST_TEXT = 300  # of what a registry says of an error
_PIECE = 1 << 16
_OK, _NO_CONTENT, _BAD_REQUEST, _TOO_MANY, _SERVER_ERROR = 200, 204, 400, 429, 500
_SETTINGS = "/mode", "/config"
_DENIED, NOT_FOUND = (401, 403), 404
_CONTEXT = re.compile(r":[^:]*:")
_TYPE = "application/vnd.schemaregistry.v1+json"

_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)  # of decoding an answer

T = TypeVar("T")


class RegistryUnavailable(Exception):
    """The registry does not answer, or refuses to: the same request may succeed later."""


class UnreadableAnswer(RegistryUnavailable):
    """An answer is not what this request's should be."""


class NotInRegistry(Exception):
    """The registry does not have what was asked for."""


class GuidsUnknown(Exception):
    """The registry is older than GUIDs of schemas, or of another vendor: none is found by its GUID there."""


class RegistryRefused(Exception):
    """The registry refuses a request, and would refuse it again. `code` is its error code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class _Place(msgspec.Struct, frozen=True):
    subject: str
    version: int


class _Id(msgspec.Struct, frozen=True):
    id: SchemaNumber
    context: str = "."  # of a GUID's ids; this is the default one


class _Compatibility(msgspec.Struct, frozen=True):
    compatibilityLevel: str = ""  # noqa: N815 - the registry's name
    compatibility: str = ""

    @property
    def level(self) -> str:
        return self.compatibilityLevel or self.compatibility


class _Mode(msgspec.Struct, frozen=True):
    mode: str


class _Problem(msgspec.Struct, frozen=True):
    error_code: int = 0
    message: str = ""


class SchemaRegistry:
    """A client of one registry. Secrets are resolved where it runs.

    `sasl.username` and `sasl.password` are sent as basic authentication, and the `ssl.` files are those of
    the connection, as Confluent's clients do with `SASL_INHERIT`. Every method raises RegistryUnavailable
    and RegistryRefused; those that read raise NotInRegistry. At most CONNECTIONS requests are sent at the
    same time.
    """

    def __init__(self, spec: RegistrySpec, environ: Mapping[str, str] = os.environ) -> None:
        self.url = spec.url.rstrip("/")
        self._spec = spec
        self._environ = environ
        self._threads = ThreadPoolExecutor(CONNECTIONS, "schemas")
        self._local = threading.local()
        self._lock = threading.Lock()
        self._opened: _Address | None = None
        self._connections: set[http.client.HTTPConnection] = set()
        self._end = weakref.finalize(self, _end, self._threads, self._connections)

    @property
    def name(self) -> str:
        """The address of the registry."""
        return self.url

    async def schema(self, number: int) -> Schema:
        """Returns the schema of an id."""
        return await self._get(f"/schemas/ids/{number}", f"schema id {number}", Schema)

    async def places(self, number: int, *, deleted: bool = False) -> list[tuple[str, int]]:
        """Returns the subjects that have the schema of an id, each with the version.

        With `deleted` also those that were soft-deleted.
        """
        what = f"subjects of schema id {number}"
        path = f"/schemas/ids/{number}/versions{'?deleted=true' if deleted else ''}"
        places = await self._get(path, what, list[_Place], _MOST_LIST_BYTES)
        return [(place.subject, place.version) for place in places]

    async def number_of(self, guid: UUID) -> int:
        """Returns the id by which `schema` returns the schema of a GUID. Raises GuidsUnknown.

        A registry lists those of all its contexts, each of which gives ids of its own.
        """
        ids = await self._of_guid(f"/schemas/guids/{guid}/ids", guid, list[_Id])
        if not ids:
            raise NotInRegistry(f"the registry has no schema {guid}")
        wanted = await self._of_guid(f"/schemas/guids/{guid}", guid, Schema)
        ids.sort(key=lambda candidate: (candidate.context != ".", candidate.context))
        for candidate in ids[:_MOST_CONTEXTS]:
            with suppress(NotInRegistry):
                if (await self.schema(candidate.id)).is_same(wanted):
                    return candidate.id
        contexts = ", ".join(shown(candidate.context) for candidate in ids[:3])
        raise NotInRegistry(f"schema {guid} is in another context of the registry: {contexts}")

    async def has_guid(self, guid: UUID) -> bool:
        """Returns whether consumers find a schema by its GUID. Raises GuidsUnknown."""
        try:
            await self._of_guid(f"/schemas/guids/{guid}", guid, Schema)
        except NotInRegistry:
            return False
        return True

    async def _of_guid(self, path: str, guid: UUID, kind: type[T]) -> T:
        try:
            return await self._get(path, f"schema {guid}", kind)
        except RegistryRefused as refused:
            if refused.code != NOT_FOUND:
                raise
        await self.compatibility()  # a proxy without its registry answers 404 to this, too
        raise GuidsUnknown(f"{self.url}: it knows no GUIDs of schemas")

    async def subjects(self, *, deleted: bool = False) -> list[str]:
        """Returns the names of all subjects; with `deleted` those that were soft-deleted, too."""
        path = f"/subjects{'?deleted=true' if deleted else ''}"
        listed = await self._get(path, "subjects", list[str], _MOST_LIST_BYTES)
        return sorted(subject for subject in listed if subject_problem(subject) is None)

    async def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """Returns the versions of a subject; with `deleted` those that were soft-deleted, too."""
        path = f"/subjects/{_quoted(subject)}/versions{'?deleted=true' if deleted else ''}"
        return sorted(await self._get(path, f"versions of {shown(subject)}", list[int]))

    async def version(self, subject: str, number: int, *, deleted: bool = False) -> RegisteredSchema:
        """Returns a version of a subject; with `deleted` also one that was soft-deleted."""
        what = f"{shown(subject)} version {number}"
        path = f"/subjects/{_quoted(subject)}/versions/{number}{'?deleted=true' if deleted else ''}"
        return await self._get(path, what, RegisteredSchema)

    async def every_version(self, *, deleted: bool = False) -> dict[str, tuple[SchemaVersion, ...]]:
        """Returns the versions of all subjects, in their order.

        With `deleted` also those that were soft-deleted. They are listed in pages. A registry that knows no
        such list, or lists texts alone, is asked for each version.
        """
        try:
            async with asyncio.timeout(_LIST_S):
                return await self._every_version(deleted)
        except TimeoutError:
            text = f"{self.url}: schemas: the list takes more than {_LIST_S:.0f} s"
            raise RegistryUnavailable(text) from None

    async def _every_version(self, deleted: bool) -> dict[str, tuple[SchemaVersion, ...]]:
        try:
            listed = await self._listed(deleted)
        except (NotInRegistry, RegistryRefused, UnreadableAnswer):
            subjects = await self.subjects(deleted=deleted)
            versions = await asyncio.gather(
                *(self.versions(subject, deleted=deleted) for subject in subjects)
            )
            places = [
                (subject, number)
                for subject, numbers in zip(subjects, versions, strict=True)
                for number in numbers
            ]
            self._bound(len(places))
            read = await asyncio.gather(*(self._summary(*place, deleted) for place in places))
            listed = dict(zip(places, read, strict=True))
        by_subject: dict[str, list[SchemaVersion]] = {}
        for (subject, _), version in sorted(listed.items()):
            by_subject.setdefault(subject, []).append(version)
        return {subject: tuple(numbered) for subject, numbered in by_subject.items()}

    async def _summary(self, subject: str, number: int, deleted: bool) -> SchemaVersion:
        return summary(await self.version(subject, number, deleted=deleted))

    async def _listed(self, deleted: bool) -> dict[tuple[str, int], SchemaVersion]:
        listed: dict[tuple[str, int], SchemaVersion] = {}
        offset = 0
        while True:
            path = f"/schemas?offset={offset}&limit={_PAGE}{'&deleted=true' if deleted else ''}"
            page = await self._get(path, "schemas", list[RegisteredSchema], _MOST_LIST_BYTES)
            before = len(listed)
            listed |= await asyncio.get_running_loop().run_in_executor(self._threads, _summaries, page)
            self._bound(len(listed))
            if len(listed) == before:  # the end, or a registry that does not know pages
                return listed
            offset += len(page)

    def _bound(self, versions: int) -> None:
        if versions > _MOST_VERSIONS:
            raise RegistryUnavailable(f"{self.url}: it has more than {_MOST_VERSIONS} schemas")

    async def find(self, subject: str, schema: Schema) -> RegisteredSchema:
        """Returns the version of a subject that has this schema."""
        path, what = f"/subjects/{_quoted(subject)}", f"such schema in {shown(subject)}"
        registered = await self._send("POST", path, what, _registration(schema), RegisteredSchema)
        return schema.at(registered.subject, registered.version, registered.id)

    async def register(
        self, subject: str, schema: Schema, number: int | None = None, version: int | None = None
    ) -> int:
        """Registers a schema, and returns its id. `number` and `version` need the subject's mode IMPORT.

        A registry that has the schema in this subject returns the id that it has.
        """
        body = _registration(schema)
        if number is not None:
            body |= {"id": number}
        if version is not None:
            body |= {"version": version}
        path, what = f"/subjects/{_quoted(subject)}/versions", f"a schema of {shown(subject)}"
        return (await self._send("POST", path, what, body, _Id)).id

    async def compatibility(self) -> str:
        """Returns the compatibility of all subjects that have none of their own."""
        return (await self._get(*_of("config", None), _Compatibility)).level

    async def own_compatibilities(self, subjects: Sequence[str]) -> list[str]:
        """Returns the compatibility of each subject; "" where it has none of its own."""

        def read(subject: str) -> str:
            return self._answer("GET", *_of("config", subject), None, _Compatibility, _MOST_BYTES).level

        return await self._own(subjects, read)

    async def set_compatibility(self, level: str, subject: str | None) -> None:
        """Sets the compatibility of a subject, or that of all others."""
        await self._send("PUT", *_of("config", subject), {"compatibility": level}, _Compatibility)

    async def mode(self, subject: str | None = None) -> str:
        """Returns the mode of a subject, or that of all others."""
        return (await self._get(*_of("mode", subject), _Mode)).mode

    async def own_modes(self, subjects: Sequence[str]) -> list[str]:
        """Returns the mode of each subject; "" where it has none of its own."""

        def read(subject: str) -> str:
            return self._answer("GET", *_of("mode", subject), None, _Mode, _MOST_BYTES).mode

        return await self._own(subjects, read)

    async def _own(self, subjects: Sequence[str], read: Callable[[str], str]) -> list[str]:
        """Reads a setting of each subject, since registries list none. Each thread reads a share of them."""
        ended = threading.Event()

        def read_share(share: Sequence[str]) -> list[str]:
            share_values = []
            for subject in share:
                if ended.is_set():
                    break
                try:
                    share_values.append(read(subject))
                except NotInRegistry:
                    share_values.append("")
            return share_values

        loop, values = asyncio.get_running_loop(), [""] * len(subjects)
        shares = [subjects[first::CONNECTIONS] for first in range(min(CONNECTIONS, len(subjects)))]
        try:
            async with asyncio.timeout(_LIST_S):
                read_shares = await asyncio.gather(
                    *(loop.run_in_executor(self._threads, read_share, share) for share in shares)
                )
        except TimeoutError:
            text = f"{self.url}: the settings of {len(subjects)} subjects take more than {_LIST_S:.0f} s"
            raise RegistryUnavailable(text) from None
        finally:
            ended.set()
        for first, share in enumerate(read_shares):
            values[first::CONNECTIONS] = share
        return values

    async def set_mode(self, mode: str, subject: str | None) -> None:
        """Sets the mode of a subject, or that of all others, also where there are schemas already."""
        path, what = _of("mode", subject)
        try:
            await self._send("PUT", f"{path}?force=true", what, {"mode": mode}, _Mode)
        except NotInRegistry:
            text = f"{self.url}: it has no modes, so it can't keep ids — set schemas.ids to translate"
            raise RegistryRefused(text, NOT_FOUND) from None

    def close(self) -> None:
        """Closes the connections. A request under way fails."""
        self._end()

    async def _get(self, path: str, what: str, kind: type[T], limit: int = _MOST_BYTES) -> T:
        return await self._request("GET", path, what, None, kind, limit)

    async def _send(self, method: str, path: str, what: str, body: object, kind: type[T]) -> T:
        return await self._request(method, path, what, json.dumps(body).encode(), kind, _MOST_BYTES)

    async def _request(
        self, method: str, path: str, what: str, body: bytes | None, kind: type[T], limit: int
    ) -> T:
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, self._answer, method, path, what, body, kind, limit
        )

    def _answer(self, method: str, path: str, what: str, body: bytes | None, kind: type[T], limit: int) -> T:
        """Returns the answer of a request. A thread decodes it, because a list may be large."""
        status, content = self._exchange(method, path, what, body, limit)
        if status != _OK:
            self._raise(status, content, what, setting=path.startswith(_SETTINGS))
        try:
            return msgspec.json.decode(content, type=kind)
        except _UNREADABLE:
            raise UnreadableAnswer(f"{self.url}: {what}: the answer is not that of a registry") from None

    def _raise(self, status: int, content: bytes, what: str, *, setting: bool) -> None:
        try:
            problem = msgspec.json.decode(content, type=_Problem)
        except _UNREADABLE:
            problem = _Problem()
        said = f": {shown(problem.message)}" if problem.message else ""
        # Another 404, of a proxy or of a registry that does not know the request, says nothing of a schema.
        no_setting = setting and status == _NO_CONTENT  # Apicurio says so
        if no_setting or (status == NOT_FOUND and problem.error_code // 100 == NOT_FOUND):
            raise NotInRegistry(f"the registry has no {what}")
        if status in _DENIED:
            key = "check sasl.username and sasl.password of the registry's client, and its rights"
            raise RegistryUnavailable(redacted(f"{self.url}: {what}: HTTP status {status}{said} — {key}"))
        if _BAD_REQUEST <= status < _SERVER_ERROR and status != _TOO_MANY:
            text = f"{self.url}: {what}: HTTP status {status}{said}"
            raise RegistryRefused(redacted(text), problem.error_code or status)
        raise RegistryUnavailable(redacted(f"{self.url}: {what}: HTTP status {status}{said}"))

    def _exchange(
        self, method: str, path: str, what: str, body: bytes | None, limit: int
    ) -> tuple[int, bytes]:
        """Sends a request over this thread's connection, and returns the status and the content.

        A connection that the registry closed meanwhile is opened again once.
        """
        for reused in (True, False):
            try:
                connection = self._connection(fresh=not reused)
                fresh = connection.sock is None
                connection.request(method, self._address().path + path, body, self._address().headers)
                with (
                    connection.getresponse() as answer
                ):  # the connection takes no further request while it is open
                    return answer.status, _content(answer, limit)
            except (http.client.RemoteDisconnected, ConnectionError) as error:
                self._drop()
                if fresh or not reused:
                    raise RegistryUnavailable(redacted(f"{self.url}: {what}: {shown(str(error))}")) from None
            except (OSError, http.client.HTTPException, ClientSettingsError, ValueError) as error:
                self._drop()
                raise RegistryUnavailable(redacted(f"{self.url}: {what}: {shown(str(error))}")) from None
        raise AssertionError("unreachable")

    def _connection(self, *, fresh: bool) -> http.client.HTTPConnection:
        cached: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if cached is not None and not fresh:
            return cached
        connection = self._address().connection()
        with self._lock:
            self._connections.add(connection)
        self._local.connection = connection
        return connection

    def _drop(self) -> None:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        self._local.connection = None
        if connection is not None:
            connection.close()
            with self._lock:
                self._connections.discard(connection)

    def _address(self) -> _Address:
        """Resolves the settings once. Raises ClientSettingsError, and OSError for unreadable files."""
        with self._lock:
            if self._opened is None:
                self._opened = _Address.of(self._spec, self._environ)
            return self._opened


def _end(threads: ThreadPoolExecutor, connections: set[http.client.HTTPConnection]) -> None:
    threads.shutdown(wait=False, cancel_futures=True)
    while connections:
        connections.pop().close()


class _TimedAnswer(http.client.HTTPResponse):
    """An answer whose headers and content come within _TIMEOUT_S, however small the pieces are."""

    def __init__(self, sock: socket.socket, *args: Any, **more: Any) -> None:
        super().__init__(sock, *args, **more)
        self.fp = io.BufferedReader(_TimedReader(sock), _PIECE)


class _TimedReader(io.RawIOBase):
    """Reads a socket until the deadline, then raises TimeoutError."""

    def __init__(self, sock: socket.socket) -> None:
        self._file = sock.makefile("rb", buffering=0)
        self._deadline = time.monotonic() + _TIMEOUT_S

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if time.monotonic() > self._deadline:
            raise TimeoutError(f"the answer takes more than {_TIMEOUT_S:.0f} s")
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


class _Address(NamedTuple):
    host: str
    port: int
    path: str
    headers: Mapping[str, str]
    context: ssl.SSLContext | None

    @classmethod
    def of(cls, spec: RegistrySpec, environ: Mapping[str, str]) -> _Address:
        settings = ClientSecrets(environ).resolve_registry(spec.url, spec.client)
        host, port = registry_address(spec.url)
        parts = urllib.parse.urlsplit(spec.url)
        headers = {"Accept": f"{_TYPE}, application/json", "Content-Type": _TYPE}
        if "sasl.username" in settings:
            pair = f"{settings['sasl.username']}:{settings.get('sasl.password', '')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        context = None
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=settings.get("ssl.ca.location"))
            if "ssl.certificate.location" in settings:
                context.load_cert_chain(
                    settings["ssl.certificate.location"],
                    settings.get("ssl.key.location"),
                    settings.get("ssl.key.password"),
                )
        return cls(host, port, parts.path.rstrip("/"), headers, context)

    def connection(self) -> http.client.HTTPConnection:
        if self.context is None:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=_TIMEOUT_S)
        else:
            connection = http.client.HTTPSConnection(
                self.host, self.port, timeout=_TIMEOUT_S, context=self.context
            )
        connection.response_class = _TimedAnswer
        return connection


def summary(registered: RegisteredSchema) -> SchemaVersion:
    """Returns a version without its text."""
    references = tuple((to.subject, to.version) for to in registered.references)
    return SchemaVersion(registered.version, registered.id, registered.fingerprint(), references)


def _summaries(page: Sequence[RegisteredSchema]) -> dict[tuple[str, int], SchemaVersion]:
    """Returns the versions without their texts. Large texts take long: a thread does it."""
    return {(registered.subject, registered.version): summary(registered) for registered in page}


def _content(answer: http.client.HTTPResponse, limit: int) -> bytes:
    """Reads an answer. Raises OSError for one that is too large or takes too long."""
    pieces, size = [], 0
    while piece := answer.read1(_PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise OSError(f"the answer has more than {limit >> 20} MiB")
    return b"".join(pieces)


def _of(setting: str, subject: str | None) -> tuple[str, str]:
    if subject is None:
        return f"/{setting}", setting
    return f"/{setting}/{_quoted(subject)}", f"{setting} of {shown(subject)}"


def _registration(schema: Schema) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": schema.text, "schemaType": schema.type}
    if schema.references:
        body["references"] = [msgspec.to_builtins(reference) for reference in schema.references]
    if schema.metadata:
        body["metadata"] = schema.metadata
    if schema.rules:
        body["ruleSet"] = schema.rules
    return body


def subject_problem(subject: str) -> str | None:
    """Returns why a name is not that of one subject; None where it is.

    Another registry may list any name, or refer to it. As a part of a path, an empty one and dots stand for
    the setting of all subjects, and so does a context without a subject.
    """
    if subject in ("", ".", "..", "__GLOBAL", "__EMPTY") or _CONTEXT.fullmatch(subject):
        return f"{subject!r} is not the name of a subject"
    return None


def _quoted(subject: str) -> str:
    """Returns a subject as a part of a path. Raises RegistryRefused."""
    if (problem := subject_problem(subject)) is not None:
        raise RegistryRefused(problem, NOT_FOUND)
    return urllib.parse.quote(subject, safe="")


def shown(text: str) -> str:
    """Returns a text of a registry for messages: without control characters, and not too long."""
    clean = text
    if not text.isprintable():
        clean = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return clean if len(clean) <= _MOST_TEXT else clean[:_MOST_TEXT] + "…"
