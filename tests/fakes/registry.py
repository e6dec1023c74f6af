"""A schema registry of the tests, with the rules of Confluent's REST API for what flows use of it.

It checks modes, ids, versions, references and, of Avro, whether a new schema reads what the last one wrote.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

from tests.serving import serving

_NOT_READ_WRITE, _INVALID, _NO_VERSION, _INCOMPATIBLE = 42205, 42201, 42202, 409


def framed(number: int, content: bytes) -> bytes:
    """A value in Confluent's wire format: the id of its schema stands before it."""
    return b"\0" + number.to_bytes(4) + content


class _Problem(Exception):
    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class RegistryServer:
    """`schemas` are the answers by id, `subjects` the id of each version by subject. `asked` are the paths.

    The versions in `soft_deleted` are listed for who asks for them.
    Without `authorization`, no credentials are asked for. While `down`, it answers 503.
    Without `guids`, it finds no schema by its GUID, and without `lists`, it has no list of all schemas, as
    older registries; with "texts", the list names no subjects, as in Apicurio 3.3. Without `levels_of_new`,
    a subject has a version before it has a compatibility, as in Apicurio. Each answer takes `slow_s`, and
    waits until `open` is set.
    """

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, dict[int, int]] = {}
        self.modes: dict[str | None, str] = {None: "READWRITE"}
        self.levels: dict[str | None, str] = {None: "BACKWARD"}
        self.soft_deleted: set[tuple[str, int]] = set()
        self.asked: list[str] = []
        self.authorization: str | None = None
        self.down = False
        self.lists: bool | Literal["texts"] = True
        self.guids = True
        self.levels_of_new = True
        self.slow_s = 0.0
        self.open = threading.Event()
        self.open.set()
        self.url = ""
        self._lock = threading.Lock()

    def add(self, number: int, schema: Any, subject: str = "", version: int = 0, **more: Any) -> None:
        """Adds a schema as if it was registered before."""
        self.schemas[number] = {"schema": schema if isinstance(schema, str) else json.dumps(schema), **more}
        if subject:
            versions = self.subjects.setdefault(subject, {})
            versions[version or max(versions, default=0) + 1] = number

    def answer(self, method: str, path: str, authorization: str | None, body: Any = None) -> tuple[int, Any]:
        with self._lock:
            self.asked.append(path)
            if self.down:
                return 503, {"error_code": 503}
            if self.authorization is not None and authorization != self.authorization:
                return 401, {"error_code": 401}
            try:
                parts = urlsplit(path)
                return 200, self._answer(method, parts.path, body, parse_qs(parts.query))
            except _Problem as problem:
                return problem.status, {"error_code": problem.code, "message": str(problem)}

    def _answer(self, method: str, path: str, body: Any, query: dict[str, list[str]]) -> Any:
        match method, *(unquote(part) for part in path.strip("/").split("/")):
            case "GET" | "PUT", ("config" | "mode") as setting, *named:
                return self._setting(method, setting, named[0] if named else None, body, query)
            case "GET", "subjects":
                return sorted({name for name, _ in self._listed(query)})
            case "GET", "subjects", subject, "versions":
                return [at for at in sorted(self._versions(subject)) if self._is_seen(subject, at, query)]
            case "GET", "subjects", subject, "versions", version:
                return self._version(subject, version, query)
            case "POST", "subjects", subject, "versions":
                registered = self._register(subject, body)
                return {"id": registered, **self._schema(registered)}
            case "POST", "subjects", subject:
                number = self._number_of(body)
                for at, known in self._versions(subject).items():
                    if known == number:
                        return self._version(subject, str(at))
                raise _Problem(404, 40403, "Schema not found")
            case "GET", "schemas", *at:
                return self._schemas(at, query)
        raise _Problem(404, 404, "HTTP 404 Not Found")

    def _schemas(self, at: list[str], query: dict[str, list[str]]) -> Any:
        match at:
            case [] if self.lists == "texts":
                return [{"schema": version["schema"]} for version in self._page(query)]
            case [] if self.lists:
                return self._page(query)
            case "ids", known:
                return self._schema(int(known))
            case "guids", guid, "ids" if self.guids:
                return [{"context": ".", "id": number} for number in self._numbers_of(guid)]
            case "guids", guid if self.guids:
                for number in self._numbers_of(guid):
                    return self._schema(number)
                raise _Problem(404, 40403, f"Schema {guid} not found")
            case "ids", known, "versions":
                self._schema(int(known))
                places = self._places(int(known))
                return [at for at in places if self._is_seen(at["subject"], at["version"], query)]
        raise _Problem(404, 404, "HTTP 404 Not Found")

    def guid(self, number: int) -> str:
        return str(self._schema(number)["guid"])

    def _numbers_of(self, guid: str) -> list[int]:
        return [number for number in self.schemas if self.guid(number) == guid]

    def _setting(
        self, method: str, setting: str, subject: str | None, body: Any, query: dict[str, list[str]]
    ) -> Any:
        values, key = (self.modes, "mode") if setting == "mode" else (self.levels, "compatibilityLevel")
        if method == "GET":
            if subject not in values:
                missing = 40409 if setting == "mode" else 40408
                raise _Problem(404, missing, f"Subject '{subject}' does not have its own setting")
            return {key: values[subject]}
        if setting == "config" and subject not in self.subjects and not self.levels_of_new:
            raise _Problem(404, 40401, f"Subject '{subject}' not found.")
        forced = query.get("force") == ["true"]
        if body.get("mode") == "IMPORT" and self.subjects.get(subject or "") and not forced:
            raise _Problem(422, _NOT_READ_WRITE, "Cannot import since found existing subjects")
        values[subject] = body["mode"] if setting == "mode" else body["compatibility"]
        return body

    def _listed(self, query: dict[str, list[str]]) -> list[tuple[str, int]]:
        places = [(name, version) for name in sorted(self.subjects) for version in self.subjects[name]]
        return [place for place in places if self._is_seen(*place, query)]

    def _page(self, query: dict[str, list[str]]) -> list[dict[str, Any]]:
        places, offset, limit = self._listed(query), int(query["offset"][0]), int(query["limit"][0])
        return [self._version(name, str(version), query) for name, version in places[offset : offset + limit]]

    def _is_seen(self, subject: str, version: int, query: dict[str, list[str]]) -> bool:
        return query.get("deleted") == ["true"] or (subject, version) not in self.soft_deleted

    def _places(self, number: int) -> list[dict[str, Any]]:
        return [
            {"subject": subject, "version": version}
            for subject, versions in self.subjects.items()
            for version, known in versions.items()
            if known == number
        ]

    def _schema(self, number: int) -> dict[str, Any]:
        if number not in self.schemas:
            raise _Problem(404, 40403, f"Schema {number} not found")
        return self.schemas[number] | {"guid": _guid(self.schemas[number])}

    def _versions(self, subject: str) -> dict[int, int]:
        if subject not in self.subjects:
            raise _Problem(404, 40401, f"Subject '{subject}' not found.")
        return self.subjects[subject]

    def _version(
        self, subject: str, version: str, query: dict[str, list[str]] | None = None
    ) -> dict[str, Any]:
        versions = self._versions(subject)
        number = max(versions) if version == "latest" else int(version)
        if number < 1:
            raise _Problem(422, _NO_VERSION, f"The specified version '{version}' is not a valid version id")
        if number not in versions or (query is not None and not self._is_seen(subject, number, query)):
            raise _Problem(404, 40402, f"Version {version} not found.")
        place = {"subject": subject, "version": number, "id": versions[number]}
        return place | self.schemas[versions[number]]

    def _number_of(self, body: Any) -> int | None:
        wanted = _normal(body)
        return next((number for number, schema in self.schemas.items() if _normal(schema) == wanted), None)

    def _register(self, subject: str, body: Any) -> int:
        mode = self.modes.get(subject, self.modes[None])
        given, versions = body.get("id"), self.subjects.get(subject, {})
        if mode == "READONLY":
            raise _Problem(422, _NOT_READ_WRITE, f"Subject {subject} is in read-only mode")
        if (given is not None) != (mode == "IMPORT"):
            raise _Problem(
                422, _NOT_READ_WRITE, f"Subject {subject} is {'' if given is None else 'not '}in import mode"
            )
        for reference in body.get("references", ()):
            if reference["version"] not in self.subjects.get(reference["subject"], {}):
                raise _Problem(422, _INVALID, f"No schema reference found for subject {reference['subject']}")
        number = self._number_of(body)
        if number is not None and number in versions.values() and given in (None, number):
            return number
        if given is not None and given in self.schemas and given != number:
            raise _Problem(422, _NOT_READ_WRITE, f"Overwrite new schema with id {given} is not permitted.")
        if given is None and versions and not self._reads_the_last(subject, body):
            raise _Problem(
                409, _INCOMPATIBLE, "Schema being registered is incompatible with an earlier schema"
            )
        if given is None:
            given = number if number is not None else max(self.schemas, default=0) + 1
        self.schemas[given] = {
            key: body[key]
            for key in ("schema", "schemaType", "references", "metadata", "ruleSet")
            if key in body
        }
        version = body.get("version") or max(versions, default=0) + 1
        self.subjects.setdefault(subject, {})[version] = given
        return int(given)

    def _reads_the_last(self, subject: str, body: Any) -> bool:
        last = self._version(subject, "latest")
        if self.levels.get(subject, self.levels[None]) == "NONE" or body.get("schemaType", "AVRO") != "AVRO":
            return True
        new, old = json.loads(body["schema"]), json.loads(last["schema"])
        known = {field["name"] for field in old.get("fields", ())}
        return all("default" in field or field["name"] in known for field in new.get("fields", ()))


def _guid(schema: Any) -> str:
    """The same for the same schema, in each registry."""
    return str(uuid.UUID(bytes=hashlib.md5(repr(_normal(schema)).encode()).digest()))


def _normal(schema: Any) -> tuple[str, str, str]:
    text, kind = schema["schema"], schema.get("schemaType", "AVRO")
    if kind in ("AVRO", "JSON"):
        with suppress(ValueError):
            text = json.dumps(json.loads(text), sort_keys=True)
    more = [schema.get(key) or [] for key in ("references", "metadata", "ruleSet")]
    return kind, text, json.dumps(more, sort_keys=True)


@contextmanager
def registry_server() -> Iterator[RegistryServer]:
    registry = RegistryServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # headers and body leave together

        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def do_PUT(self) -> None:
            self.do_POST()

        def _answer(self, sent: Any) -> None:
            authorization = self.headers.get("Authorization")
            time.sleep(registry.slow_s)
            registry.open.wait()
            status, content = registry.answer(self.command, self.path, authorization, sent)
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True  # a client keeps its connections
        request_queue_size = 128  # a client opens many at once, and waits a second for one that was dropped

    with serving(Server(("127.0.0.1", 0), Handler)) as registry.url:
        try:
            yield registry
        finally:
            registry.open.set()
