"""A registry is another system: what it answers is bounded, checked, and shown without control characters."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar
from uuid import UUID

import pytest

from runtime.contract.records.schemas import Schema
from runtime.contract.spec.schemas import RegistrySpec
from runtime.schemas import client
from runtime.schemas.client import (
    NotInRegistry,
    RegistryRefused,
    RegistryUnavailable,
    SchemaRegistry,
    shown,
)
from tests.fakes.registry import registry_server
from tests.serving import serving

T = TypeVar("T")
Send = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def server(send: Send) -> Iterator[tuple[str, list[str]]]:
    """A server that answers every request by `send`, and the headers of authorization that it got."""
    got: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            got.append(self.headers.get("Authorization", ""))
            send(self)

        def log_message(self, *_: Any) -> None:
            """Writes no log."""

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        yield url, got


def answers(status: int, content: bytes, **headers: str) -> Send:
    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content)

    return send


def dripping(handler: BaseHTTPRequestHandler) -> None:
    """Sends a header byte by byte, until the client has gone."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
    with suppress(OSError):
        while True:
            handler.wfile.write(b"a")
            time.sleep(0.01)


def asked(url: str, ask: Callable[[SchemaRegistry], Awaitable[T]], **client: Any) -> T:
    async def answer() -> T:
        registry = SchemaRegistry(RegistrySpec(url=url, client=client), {"PASSWORD": "hidden"})
        try:
            return await ask(registry)
        finally:
            registry.close()

    return asyncio.run(answer())


@pytest.mark.parametrize(
    ("send", "why"),
    [
        (answers(200, b"[" * 100_000), "the answer is not that of a registry"),
        (answers(200, b'{"schema": 7}'), "the answer is not that of a registry"),
        (answers(200, b'{"schema": "' + b"a" * (5 << 20) + b'"}'), "the answer has more than 4 MiB"),
        (answers(500, b'{"error_code": 50001, "message": "\x1b[31mred"}'), "HTTP status 500"),
        (answers(500, b'{"message": "\\u001b[31mred"}'), "HTTP status 500: \N{REPLACEMENT CHARACTER}[31mred"),
        (answers(302, b"", Location="http://127.0.0.1:9/elsewhere"), "HTTP status 302"),
        (answers(401, b"{}"), "check sasl.username and sasl.password"),
        (answers(500, b'{"message": "\xff"}'), "HTTP status 500"),
        (dripping, "schema id 1"),
        (lambda handler: handler.wfile.write(b"\x1b[31mred\r\n\r\n"), "schema id 1"),
    ],
    ids=[
        "nested",
        "another type",
        "huge",
        "no JSON",
        "escapes",
        "redirection",
        "no rights",
        "no UTF-8",
        "headers without an end",
        "no HTTP",
    ],
)
def test_an_answer_that_is_no_schema_is_an_error_that_may_pass(
    send: Send, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if send is dripping:
        monkeypatch.setattr("runtime.schemas.client._TIMEOUT_S", 0.3)
    with server(send) as (url, _), pytest.raises(RegistryUnavailable) as raised:
        asked(url, lambda registry: registry.schema(1))
    assert why in str(raised.value)
    assert "\x1b" not in str(raised.value)


def test_credentials_never_follow_a_redirection() -> None:
    with server(answers(200, b"{}")) as (elsewhere, got):
        redirects = answers(307, b"", Location=f"{elsewhere}/schemas/ids/1")
        with server(redirects) as (url, first), pytest.raises(RegistryUnavailable) as raised:
            asked(
                url,
                lambda registry: registry.schema(1),
                **{"sasl.username": "repl", "sasl.password": {"env": "PASSWORD"}},
            )
    assert len(first) == 1
    assert first[0].startswith("Basic ")
    assert got == []
    assert "hidden" not in str(raised.value)


def test_a_list_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_MOST_VERSIONS", 900)
    count = 0

    def send(handler: BaseHTTPRequestHandler) -> None:
        nonlocal count
        names = [f"s{count}-{at}" for at in range(200)]
        count += 1
        page = [{"subject": name, "version": 1, "id": 1, "schema": "{}"} for name in names]
        answers(200, json.dumps(page).encode())(handler)

    with server(send) as (url, _), pytest.raises(RegistryUnavailable, match="more than 900 schemas"):
        asked(url, lambda registry: registry.every_version())


def test_pages_are_put_together_until_one_brings_nothing_new() -> None:
    with registry_server() as registry:
        for number in range(1, 2_502):
            registry.add(number, {"name": f"r{number}"}, f"s{number % 7}")
        found = asked(registry.url, lambda client: client.every_version())
        assert sorted(version.id for listed in found.values() for version in listed) == list(range(1, 2_502))
        assert len([path for path in registry.asked if path.startswith("/schemas?")]) == 4


def test_refusals_say_their_code_and_what_is_missing_is_named() -> None:
    with registry_server() as registry:
        registry.modes[None] = "READONLY"
        with pytest.raises(RegistryRefused, match="read-only mode") as refused:
            asked(registry.url, lambda client: client.register("a", Schema('"int"')))
        assert refused.value.code == 42205
        with pytest.raises(NotInRegistry, match="the registry has no a/b version 1"):
            asked(registry.url, lambda client: client.version("a/b", 1))


@pytest.mark.parametrize(
    ("send", "kind"),
    [
        (answers(404, b'{"error_code": 40401}'), NotInRegistry),
        (answers(204, b""), NotInRegistry),  # Apicurio, for a subject without a mode of its own
        (answers(404, b""), RegistryRefused),  # a proxy, or a registry that does not know the request
        (answers(404, b"default backend"), RegistryRefused),
        (answers(404, b'{"error_code": 404}'), RegistryRefused),
    ],
)
def test_only_the_registry_itself_says_that_it_has_nothing(send: Send, kind: type[Exception]) -> None:
    with server(send) as (url, _), pytest.raises(kind):
        asked(url, lambda registry: registry.mode("orders-value"))


@pytest.mark.parametrize("number", [-1, 1 << 31, 1 << 70])
def test_a_number_that_no_record_can_hold_is_no_id(number: int) -> None:
    body = json.dumps({"subject": "a", "version": 1, "id": number, "schema": "{}"}).encode()
    with server(answers(200, body)) as (url, _), pytest.raises(RegistryUnavailable, match="not that of"):
        asked(url, lambda registry: registry.version("a", 1))


def test_a_text_for_messages_has_no_control_characters_and_an_end() -> None:
    assert shown("a\x1b]8;;b\x07\u202e") == "a\ufffd]8;;b\ufffd\ufffd"
    assert len(shown("x" * 10_000)) == 301


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (Schema('{"a": 1, "b": 2}'), Schema('{"b":2,"a":1}'), True),
        (Schema('{"a": 1}'), Schema('{"a": 2}'), False),
        (Schema('{"a": 1}'), Schema('{"a": 1}', "JSON"), False),
        (Schema("message A {}", "PROTOBUF"), Schema("message  A {}\n", "PROTOBUF"), True),
        (Schema("[" * 100_000), Schema("[" * 100_000), True),
    ],
)
def test_white_space_and_the_order_of_keys_mean_nothing(one: Schema, other: Schema, same: bool) -> None:
    assert (one.fingerprint() == other.fingerprint()) is same


def test_settings_of_many_subjects_come_in_their_order_and_end_with_a_failure() -> None:
    subjects = [f"s{number}" for number in range(100)]

    async def read(registry: SchemaRegistry) -> tuple[list[str], list[str]]:
        return await registry.own_compatibilities(subjects), await registry.own_modes(subjects[:5])

    with registry_server() as server:
        server.levels |= {f"s{number}": f"LEVEL{number}" for number in range(0, 100, 7)}
        server.modes |= {"s3": "IMPORT"}
        levels, modes = asked(server.url, read)
        assert levels == [f"LEVEL{number}" if number % 7 == 0 else "" for number in range(100)]
        assert modes == ["", "", "", "IMPORT", ""]
        server.asked.clear()
        server.down = True
        with pytest.raises(RegistryUnavailable):
            asked(server.url, read)
        assert len(server.asked) <= 16


def test_settings_that_take_too_long_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_LIST_S", 0.3)
    with registry_server() as server:
        server.slow_s = 0.1
        with pytest.raises(RegistryUnavailable, match=r"settings of 100 subjects take more than"):
            asked(server.url, lambda registry: registry.own_modes([f"s{at}" for at in range(100)]))


@pytest.mark.parametrize(
    ("listed", "number"),
    [
        ([{"context": ".b", "id": 8}, {"context": ".", "id": 7}], 7),
        ([{"context": ".", "id": 8}, {"context": ".b", "id": 7}], 7),  # the address is that of a context
        ([{"context": ".", "id": 9}, {"id": 7}], 7),
        ([{"context": ".b", "id": 8}, {"context": ".a", "id": 9}], "in another context .*: .a, .b"),
        ([], "the registry has no schema"),
    ],
)
def test_the_id_of_a_guid_is_one_that_names_its_schema_here(listed: Any, number: Any) -> None:
    def number_of(registry: SchemaRegistry) -> Awaitable[int]:
        return registry.number_of(UUID(int=1))

    schema, other = ({"schema": f'"{name}"'} for name in ("long", "int"))
    found = {"/schemas/ids/7": schema, "/schemas/ids/8": other, f"/schemas/guids/{UUID(int=1)}": schema}
    found[f"/schemas/guids/{UUID(int=1)}/ids"] = listed

    def send(handler: BaseHTTPRequestHandler) -> None:
        answer = found.get(handler.path, {"error_code": 40403})
        answers(200 if handler.path in found else 404, json.dumps(answer).encode())(handler)

    with server(send) as (url, _):
        if isinstance(number, int):
            assert asked(url, number_of) == number
        else:
            with pytest.raises(NotInRegistry, match=number):
                asked(url, number_of)


@pytest.mark.parametrize("answer", [b'[{"context": ".", "id": 4294967296}]', b"null"], ids=["no id", "null"])
def test_what_is_no_list_of_ids_is_an_error(answer: bytes) -> None:
    with server(answers(200, answer)) as (url, _), pytest.raises(RegistryUnavailable):
        asked(url, lambda registry: registry.number_of(UUID(int=1)))
