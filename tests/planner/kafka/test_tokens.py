"""Where an OAUTHBEARER token comes from, and what is said when none comes."""

import base64
import json
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from planner.kafka.clients import token_of
from planner.kafka.connection_errors import Refused
from runtime.contract.client.keys import ALLOW_INSECURE
from runtime.contract.client.settings import TokenCommand, TokenEndpoint, UnsecuredToken

PYTHON = f"'{sys.executable}' -c"
Answer = tuple[int, str]


@pytest.fixture
def issuer() -> Iterator[Callable[[Answer], tuple[str, list[str]]]]:
    """issuer((status, body)) → its address, and what it was sent."""
    running: list[HTTPServer] = []

    def start(answer: Answer) -> tuple[str, list[str]]:
        heard: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                heard.extend((self.headers["Authorization"], body))
                self.send_response(answer[0])
                self.end_headers()
                self.wfile.write(answer[1].encode())

            def log_message(self, *_: object) -> None:
                """Nothing on the terminal."""

        server = HTTPServer(("127.0.0.1", 0), Handler)
        running.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/token", heard

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


Issuer = Callable[[Answer], tuple[str, list[str]]]


@pytest.mark.parametrize("printed", ["abc.def.ghi", '{"access_token": "abc.def.ghi", "expires_in": 60}'])
def test_a_command_prints_it(printed: str) -> None:
    assert token_of(TokenCommand(f"printf %s '{printed}'"), 10).text == "abc.def.ghi"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (f'{PYTHON} "import sys; sys.exit(3)"', "failed with exit code 3"),
        ("/no/such/command", "can't be run"),
        ("printf ''", "printed nothing"),
        ("printf {}", "JSON that holds an access_token"),
    ],
)
def test_a_command_that_gives_none(command: str, why: str) -> None:
    with pytest.raises(Refused) as refused:
        token_of(TokenCommand(command), 10)
    assert why in refused.value.why


def test_an_endpoint_grants_it(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOW_INSECURE, "1")
    url, heard = issuer((200, '{"access_token": "granted"}'))
    assert token_of(TokenEndpoint(url, "me", "s3cret", "kafka"), 10).text == "granted"
    assert heard[0] == "Basic " + base64.b64encode(b"me:s3cret").decode()
    assert heard[1] == "grant_type=client_credentials&scope=kafka"


def test_an_endpoint_that_says_no(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOW_INSECURE, "1")
    url, _ = issuer((401, "who are you"))
    with pytest.raises(Refused) as refused:
        token_of(TokenEndpoint(url, "me", "s3cret"), 10)
    assert "answered 401" in refused.value.why
    assert "client.secret" in refused.value.way_out
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://127.0.0.1:1/token", "cannot be asked: "),
        ("http://127.0.0.1:1/token", "is not https"),
        ("file:///etc/passwd", "is not an https address"),
    ],
)
def test_an_endpoint_that_is_none(url: str, why: str) -> None:
    with pytest.raises(Refused) as refused:
        token_of(TokenEndpoint(url, "me", "s3cret"), 10)
    assert why in refused.value.why


def test_an_unsigned_token_names_its_principal() -> None:
    head, claims, signature = token_of(UnsecuredToken("me"), 10).text.split(".")
    assert json.loads(base64.urlsafe_b64decode(head + "==")) == {"alg": "none"}
    assert json.loads(base64.urlsafe_b64decode(claims + "=="))["sub"] == "me"
    assert signature == ""
