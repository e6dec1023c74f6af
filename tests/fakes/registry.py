"""A small HTTP server that speaks two requests of a schema registry. It is no registry: it checks nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class SmallRegistry:
    """`schemas` are the answers by id, `subjects` by subject and version. `asked` are the paths of requests.

    Without `authorization`, no credentials are asked for. While `down`, it answers 503.
    """

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[tuple[str, str], dict[str, Any]] = {}
        self.asked: list[str] = []
        self.authorization: str | None = None
        self.down = False
        self.url = ""

    def add(self, number: int, schema: Any, **more: Any) -> None:
        self.schemas[number] = {"schema": json.dumps(schema), **more}

    def answer(self, path: str, authorization: str | None) -> tuple[int, Any]:
        self.asked.append(path)
        if self.down:
            return 503, {"error_code": 503}
        if self.authorization is not None and authorization != self.authorization:
            return 401, {"error_code": 401}
        match path.strip("/").split("/"):
            case ["schemas", "ids", number] if int(number) in self.schemas:
                return 200, self.schemas[int(number)]
            case ["subjects", subject, "versions", version] if (subject, version) in self.subjects:
                return 200, self.subjects[subject, version]
        return 404, {"error_code": 40403, "message": "Schema not found"}


@contextmanager
def small_registry() -> Iterator[SmallRegistry]:
    registry = SmallRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, content = registry.answer(self.path, self.headers.get("Authorization"))
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
