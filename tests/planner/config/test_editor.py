"""What an editor makes of the schema: a real yaml-language-server completes, explains and checks."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planner.cli.app import run

pytestmark = pytest.mark.long

SERVER = Path(".venv/yaml-language-server/node_modules/.bin/yaml-language-server")
TOPOLOGY = """\
# yaml-language-server: $schema=topology.schema.json
apiVersion: repl/v1
name: shop
clusters:
  dc1: {bootstrap: 127.0.0.1:19092}
  dc2: {bootstrap: 127.0.0.1:29092}
flows:
  - name: dc1-to-dc2
    from: dc1
    to: dc2
    topics: {include: [orders]}
    provenance: auto
    rpo: 5s
"""


class LanguageServer:
    """A client of a language server that speaks JSON-RPC over its standard streams."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [SERVER.absolute(), "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder
        )
        self._folder = folder.as_uri()
        self._number = 0
        self.request("initialize", {"processId": None, "rootUri": self._folder, "capabilities": {}})
        self._send("initialized", {})

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def open(self, text: str) -> list[tuple[int, str]]:
        """Opens a file with this text; returns the line (from 1) and the message of each mistake in it."""
        self._number += 1
        self.uri = f"{self._folder}/t{self._number}.yaml"
        document = {"uri": self.uri, "languageId": "yaml", "version": 1, "text": text}
        self._send("textDocument/didOpen", {"textDocument": document})
        while True:
            message = self._receive()
            told = message.get("params", {})
            if message.get("method") == "textDocument/publishDiagnostics" and told["uri"] == self.uri:
                return [(one["range"]["start"]["line"] + 1, one["message"]) for one in told["diagnostics"]]

    def at(self, method: str, text: str, place: str) -> Any:
        """Asks about the place in the text right behind these characters."""
        before = text[: text.index(place) + len(place)]
        line = before.count("\n")
        position = {"line": line, "character": len(before) - before.rfind("\n") - 1}
        return self.request(
            f"textDocument/{method}", {"textDocument": {"uri": self.uri}, "position": position}
        )

    def request(self, method: str, params: dict[str, Any]) -> Any:
        self._number += 1
        self._send(method, params, id=self._number)
        while True:
            message = self._receive()
            if message.get("id") == self._number and "method" not in message:
                assert "error" not in message, message
                return message["result"]

    def _send(self, method: str, params: dict[str, Any], **more: Any) -> None:
        self._write({"jsonrpc": "2.0", "method": method, "params": params, **more})

    def _write(self, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        stream = self._process.stdin
        assert stream is not None
        stream.write(f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        stream.flush()

    def _receive(self) -> dict[str, Any]:
        """Returns the next message. A question of the server is answered with nothing."""
        stream = self._process.stdout
        assert stream is not None
        length = 0
        while (line := stream.readline().strip()) or not length:
            assert self._process.poll() is None, "the server ended"
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        message: dict[str, Any] = json.loads(stream.read(length))
        if "method" in message and "id" in message:
            settings = message["method"] == "workspace/configuration"
            result: list[dict[str, Any]] | None = (
                [{} for _ in message["params"]["items"]] if settings else None
            )
            self._write({"jsonrpc": "2.0", "id": message["id"], "result": result})
        return message


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageServer]:
    assert SERVER.is_file(), "make yaml-language-server installs it"
    folder = tmp_path_factory.mktemp("editor")
    assert run(["init", str(folder)]) == 0  # the schema stands beside what it wrote
    started = LanguageServer(folder)
    yield started
    started.close()


def test_a_topology_has_no_mistakes(server: LanguageServer) -> None:
    assert server.open(TOPOLOGY) == []


@pytest.mark.parametrize(
    ("right", "wrong", "line", "words"),
    [
        ("rpo: 5s", "rpoo: 5s", 13, "rpoo"),
        ("    from: dc1\n", "", 8, "from"),
    ],
)
def test_a_mistake_is_shown_at_its_line(
    right: str, wrong: str, line: int, words: str, server: LanguageServer
) -> None:
    mistakes = server.open(TOPOLOGY.replace(right, wrong))
    assert [at for at, _ in mistakes] == [line]
    assert words in mistakes[0][1]


def test_a_key_is_explained(server: LanguageServer) -> None:
    server.open(TOPOLOGY)
    hover = server.at("hover", TOPOLOGY, "    rpo")["contents"]["value"]
    assert "The acceptable lag" in hover
    assert "5s" in hover


def test_keys_and_values_are_completed(server: LanguageServer) -> None:
    text = f"{TOPOLOGY}    r"
    server.open(text)
    found = {one["label"] for one in server.at("completion", text, "rpo: 5s\n    r")["items"]}
    assert {"rename", "rate_limit", "restart_from"} <= found
    text = TOPOLOGY.replace("provenance: auto", "provenance: ")
    server.open(text)
    found = {one["label"] for one in server.at("completion", text, "provenance: ")["items"]}
    assert {"auto", "batch", "headers"} <= found
