"""Google Cloud Storage on this machine: its XML API, translated to that of the S3 server of the tests.

Both APIs have the same requests and answers, but for the headers of conditions and copies.
"""

from __future__ import annotations

import http.client
import http.server
import json
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote, unquote, urlsplit

from runtime.contract.client.stores import Setting
from tests.s3 import ADMIN, S3Server
from tests.s3 import KEY as ACCESS
from tests.serving import serving

VARIABLE = "GCS_TEST_KEY"
# Requests are not signed with this key; the address in it must not be used.
KEY = {"gcs_base_url": "http://127.0.0.1:9", "disable_oauth": True, "client_email": "", "private_key": ""}
CREDENTIALS = {VARIABLE: json.dumps({**KEY, "private_key_id": ""})}
_HEADERS = {"x-goog-copy-source": "x-amz-copy-source", "content-type": "content-type", "range": "range"}

# The S3 server checks no signature, and takes requests without one for those of another account.
_SIGNED = (
    f"AWS4-HMAC-SHA256 Credential={ADMIN[ACCESS]}/20260101/us-east-1/s3/aws4_request, SignedHeaders=host,"
    " Signature=0"
)


class GoogleServer:
    """A server whose buckets are those of an S3 server."""

    def __init__(self, server: S3Server, url: str) -> None:
        self.server = server
        self.url = url

    @property
    def settings(self) -> dict[str, Setting]:
        return {"endpoint": self.url, "service.account.key": {"env": VARIABLE}}


class _Translation(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    target: str

    def _translate(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {
            _HEADERS[name.lower()]: value for name, value in self.headers.items() if name.lower() in _HEADERS
        }
        if self.headers.get("x-goog-if-generation-match") == "0":
            headers["if-none-match"] = "*"
        if etag := self.headers.get("if-match"):
            headers["if-match"] = etag
        headers["authorization"] = _SIGNED
        connection = http.client.HTTPConnection(self.target)
        path, mark, query = self.path.partition("?")
        connection.request(self.command, quote(unquote(path)) + mark + query, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "server", "date"):
                self.send_header(name, value)
        size = answer.getheader("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", size or str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        connection.close()

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _translate  # noqa: N815

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def google_server(server: S3Server) -> Iterator[GoogleServer]:
    """Starts the translation of a server."""
    handler = type("Translation", (_Translation,), {"target": urlsplit(server.url).netloc})
    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)) as url:
        yield GoogleServer(server, url)
