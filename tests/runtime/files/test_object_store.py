"""What only Google's or Azure's store does: credentials of the environment, and unfinished copies."""

from __future__ import annotations

import base64
import errno
import http.server
import json
from collections.abc import Iterator

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from runtime.contract.client.stores import Setting
from runtime.files.object_store import ObjectStore
from tests.serving import serving

LAKE = "abfs://lake@account.dfs.core.windows.net"
EMPTY, WHOLE = 0, 5


class RecordingServer(http.server.ThreadingHTTPServer):
    """A store on this machine that remembers the Authorization header of each request.

    A blob is a name and its size. While `pending`, it answers to a copy as Azure may: the new blob is there
    and empty, and another copy to its name is refused.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.authorizations: list[str] = []
        self.blobs: dict[str, int] = {}
        self.pending = False


class _Answers(http.server.BaseHTTPRequestHandler):
    server: RecordingServer

    def do_GET(self) -> None:
        """Refuses every listing."""
        self._answer(403)

    def do_HEAD(self) -> None:
        size = self.server.blobs.get(self.path)
        self._answer(404 if size is None else 200, size=size or 0)

    def do_PUT(self) -> None:
        source = self.headers["x-ms-copy-source"].removeprefix(self.server.url)
        if source not in self.server.blobs:
            self._answer(404)
        elif self.server.pending and self.path in self.server.blobs:
            self._answer(409, b"<Error><Code>PendingCopyOperation</Code></Error>")
        else:
            self.server.blobs[self.path] = EMPTY if self.server.pending else self.server.blobs[source]
            self._answer(202)

    def do_POST(self) -> None:
        """Deletes the one blob of a batch, and answers in parts as Azure does."""
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        blob = text.partition("\nDELETE ")[2].partition(" ")[0]
        status = "404 Not Found" if self.server.blobs.pop(blob, None) is None else "202 Accepted"
        lines = [
            "--b",
            "Content-Type: application/http",
            "Content-ID: 0",
            "",
            f"HTTP/1.1 {status}",
            "",
            "--b--",
            "",
        ]
        self._answer(202, "\r\n".join(lines).encode(), content="multipart/mixed; boundary=b")

    def _answer(self, status: int, text: bytes = b"", size: int | None = None, content: str = "") -> None:
        self.server.authorizations.append(self.headers.get("Authorization") or "")
        self.send_response(status)
        self.send_header("Content-Length", str(len(text) if size is None else size))
        self.send_header("Last-Modified", "Fri, 27 Nov 2026 20:00:00 GMT")
        self.send_header("ETag", '"1"')
        self.send_header("Content-Type", content or "application/xml")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def server() -> Iterator[RecordingServer]:
    server = RecordingServer()
    with serving(server):
        yield server


def azure(server: RecordingServer) -> ObjectStore:
    client: dict[str, Setting] = {"endpoint": server.url, "account.key": {"env": "KEY"}}
    return ObjectStore(LAKE, client, {"KEY": "a2V5"})


STAGED, PLACE = "/account/lake/staging/a", "/account/lake/orders/a"
MOVE = [("staging/a", "orders/a")]


def test_a_staged_file_stays_until_azure_has_finished_its_copy(server: RecordingServer) -> None:
    store = azure(server)
    server.blobs[STAGED] = WHOLE
    server.pending = True
    with pytest.raises(OSError, match=r"has not finished the copy \(0 of 5 bytes\)") as unfinished:
        store.move(MOVE)
    assert unfinished.value.errno == errno.EBUSY
    with pytest.raises(OSError, match="has not finished an earlier copy to this name"):
        store.move(MOVE)
    assert server.blobs == {STAGED: WHOLE, PLACE: EMPTY}
    server.pending = False
    assert store.move(MOVE) == []
    assert server.blobs == {PLACE: WHOLE}
    assert store.move(MOVE) == ["orders/a"]


@pytest.fixture(scope="module")
def private_key() -> str:
    pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return rsa.generate_private_key(65537, 2048).private_bytes(*pem).decode()


def google(server: RecordingServer, private_key: str) -> ObjectStore:
    key = {"client_email": "declared@example.org", "private_key": private_key, "private_key_id": "1"}
    client: dict[str, Setting] = {"endpoint": server.url, "service.account.key": {"env": "KEY"}}
    return ObjectStore("gs://bucket", client, {"KEY": json.dumps(key)})


def refused(store: ObjectStore) -> str:
    with pytest.raises(OSError, match=store.address) as failed:
        store.check()
    return str(failed.value.strerror)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"GOOGLE_SERVICE_ACCOUNT": "/not/there.json"},
        {"GOOGLE_SERVICE_ACCOUNT_PATH": "/not/there.json"},
        {"SERVICE_ACCOUNT": "/not/there.json"},
        {"GOOGLE_SERVICE_ACCOUNT_KEY": "of the machine"},
        {"GOOGLE_APPLICATION_CREDENTIALS": "/not/there.json"},
        {"GOOGLE_SKIP_SIGNATURE": "true"},
    ],
)
def test_a_declared_service_account_comes_before_the_environment(
    server: RecordingServer, private_key: str, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert "access denied (403)" in refused(google(server, private_key))
    claims = server.authorizations[0].removeprefix("Bearer ").split(".")[1]
    assert json.loads(base64.urlsafe_b64decode(f"{claims}=="))["iss"] == "declared@example.org"


@pytest.mark.parametrize(
    "variables", [["GOOGLE_BEARER_TOKEN"], ["GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY"]]
)
def test_variables_that_nothing_overrides_are_named_and_no_request_is_made(
    server: RecordingServer, private_key: str, variables: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in variables:
        monkeypatch.setenv(name, "of the machine")
    why = refused(google(server, private_key))
    assert f"client.service.account.key: can't be used beside the environment variable {variables[-1]}" in why
    assert server.authorizations == []


def test_a_private_key_that_is_none_is_named(server: RecordingServer) -> None:
    pem = "-----BEGIN PRIVATE KEY-----\naGlkZGVu\n-----END PRIVATE KEY-----\n"
    why = refused(google(server, pem))
    assert "client.service.account.key: has a private_key that is no RSA key in PEM" in why
    assert "aGlkZGVu" not in why


@pytest.mark.parametrize(
    ("address", "variables"),
    [
        ("gs://bucket", {"GOOGLE_SERVICE_ACCOUNT": "/not/there.json"}),
        ("gs://bucket", {"GOOGLE_SERVICE_ACCOUNT_KEY": "no JSON"}),
        (LAKE, {"AZURE_STORAGE_ACCOUNT_KEY": "no base64"}),
        (LAKE, {"AZURE_STORAGE_SAS_TOKEN": "no token"}),
    ],
)
def test_credentials_of_the_machine_that_can_not_be_read_are_not_an_answer_of_the_store(
    server: RecordingServer, address: str, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    why = refused(ObjectStore(address, {"endpoint": server.url}))
    assert "the credentials in the environment of this machine can't be read" in why


def test_a_signature_is_skipped_for_no_declared_account_key(
    server: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_SKIP_SIGNATURE", "true")
    refused(azure(server))
    assert server.authorizations[0].startswith("SharedKey account:")
