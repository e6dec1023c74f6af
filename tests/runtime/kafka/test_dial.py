"""A host name with several addresses, and what becomes of connections that are not used."""

from __future__ import annotations

import asyncio
import shlex
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from runtime.contract.client.settings import SecurityProtocol, TokenCommand, WireSettings, wire_settings
from runtime.kafka.dial import Dialer
from runtime.kafka.errors import (
    AuthenticationFailed,
    ConnectionFailure,
    CredentialsRefused,
    Disconnected,
    ErrorCode,
)
from runtime.kafka.protocol.layout import Int64
from tests.certificates import issued
from tests.runtime.kafka.protocol.golden import response
from tests.runtime.kafka.scripted import EVERYTHING, Talk, broker

HOST = "broker.example.org"
SILENT, ANSWERS, REFUSES = "127.0.0.2", "127.0.0.1", "127.0.0.3"


class Names:
    """An event loop with this class resolves HOST to these addresses."""

    addresses: tuple[str, ...] = ()

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        if host == HOST:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in self.addresses]
        return await super().getaddrinfo(host, port, **options)  # type: ignore[misc]


LOOPS = {"uvloop": uvloop.Loop, "asyncio": asyncio.SelectorEventLoop}
Run = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


@pytest.fixture(params=list(LOOPS))
def run(request: pytest.FixtureRequest, addresses: tuple[str, ...]) -> Run:
    def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        kind: Any = type("Loop", (Names, LOOPS[request.param]), {"addresses": addresses})
        with asyncio.Runner(loop_factory=kind) as runner:
            runner.run(work())

    return run


@contextmanager
def dropping_packets(port: int) -> Iterator[None]:
    """Its backlog is full, so the kernel drops what asks for a connection."""
    with ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind((SILENT, port))
        full.listen(0)
        while True:
            waiting = stack.enter_context(socket.socket())
            waiting.settimeout(0.1)
            try:
                waiting.connect((SILENT, port))
            except TimeoutError:
                yield
                return


async def keeps_open(talk: Talk) -> None:
    await talk.reader.read()


def descriptors() -> list[str]:
    """The sockets of this process."""
    targets = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # it is that of the listing
            targets.append(str(link.readlink()))
    return sorted(target for target in targets if target.startswith("socket:"))


@pytest.mark.parametrize("addresses", [(SILENT, ANSWERS), (REFUSES, SILENT, ANSWERS), (ANSWERS, SILENT)])
def test_an_address_that_drops_packets_does_not_hold_up_the_others(run: Run) -> None:
    async def dial() -> None:
        async with broker(keeps_open) as port:
            with dropping_packets(port):
                before = descriptors()
                connection = await Dialer(WireSettings((), connect_timeout_s=5)).dial(HOST, port, "test")
                await connection.close()
                await closed(before, port)

    run(dial)


async def closed(before: list[str], port: int) -> None:
    """Waits until no socket is left but those from before; a broker in this process closes its own later."""
    for _ in range(200):
        if len(descriptors()) <= len(before):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"left open at port {port}: {set(descriptors()) - set(before)}")


@pytest.mark.parametrize("addresses", [(REFUSES, "127.0.0.4")])
def test_all_addresses_that_refuse_are_one_failure(run: Run) -> None:
    async def dial() -> None:
        async with broker(keeps_open) as port:
            pass
        with pytest.raises(Disconnected, match=r"refused|Connect call failed") as failure:
            await Dialer(WireSettings((), connect_timeout_s=5)).dial(HOST, port, "test")
        assert not failure.value.sent
        assert isinstance(failure.value.__cause__, ConnectionRefusedError)

    run(dial)


@pytest.mark.parametrize("addresses", [(ANSWERS, "127.0.0.5", SILENT)])
@pytest.mark.parametrize("protocol", [SecurityProtocol.PLAINTEXT, SecurityProtocol.SSL])
def test_a_dial_that_is_cancelled_at_any_moment_leaves_no_socket_open(
    run: Run, protocol: SecurityProtocol
) -> None:
    settings = wire_settings("one:9092", {"security.protocol": protocol.value})

    async def dial() -> None:
        async with broker(keeps_open, versions=None) as port:
            with dropping_packets(port):
                before, dialer = descriptors(), Dialer(settings)
                for steps in range(40):
                    dialling = asyncio.create_task(dialer.dial(HOST, port, "test"))
                    for _ in range(steps):
                        await asyncio.sleep(0)
                    dialling.cancel()
                    await asyncio.wait({dialling})
                    assert dialling.cancelled()
                await closed(before, port)

    run(dial)


@pytest.mark.parametrize("addresses", [(SILENT, ANSWERS)])
@pytest.mark.parametrize("trusted", [True, False])
def test_tls_is_for_the_address_that_accepts(run: Run, tmp_path: Path, trusted: bool) -> None:
    authority = issued("authority")
    certificate = issued("broker", authority, host=HOST)
    pem = tmp_path / "broker.pem"
    pem.write_bytes(certificate.key_pem + certificate.certificate_pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    settings = wire_settings(
        "one:9092",
        {
            "security.protocol": SecurityProtocol.SSL.value,
            "ssl.ca.pem": (authority if trusted else issued("other")).certificate_pem.decode(),
        },
    )

    async def dial() -> None:
        before = descriptors()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            talk = Talk(reader, writer)
            try:
                await talk.introduce(EVERYTHING)
                await talk.reader.read()
            finally:
                writer.close()

        listening = await asyncio.start_server(serve, ANSWERS, 0, ssl=server)
        port = listening.sockets[0].getsockname()[1]
        with dropping_packets(port):
            if trusted:
                connection = await Dialer(settings).dial(HOST, port, "test")
                assert connection.versions == EVERYTHING
                await connection.close()
            else:
                with pytest.raises(AuthenticationFailed, match="certificate"):
                    await Dialer(settings).dial(HOST, port, "test")
        listening.close()
        await closed(before, port)

    run(dial)


@pytest.mark.parametrize("addresses", [(ANSWERS,)])
@pytest.mark.parametrize("protocol", [SecurityProtocol.PLAINTEXT, SecurityProtocol.SSL])
@pytest.mark.parametrize("says", [b"", b"220 ready\r\n"], ids=["closes", "speaks"])
def test_a_listener_that_hangs_up_at_once_is_a_failure_like_any_other(
    run: Run, protocol: SecurityProtocol, says: bytes
) -> None:
    """As a load balancer without a broker does; another server may speak first."""
    settings = wire_settings("one:9092", {"security.protocol": protocol.value})
    reset = struct.pack("ii", 1, 0)

    async def dial() -> None:
        dialer = Dialer(settings)
        with socket.create_server((ANSWERS, 0)) as listening:

            def hang_up() -> None:
                while True:
                    try:
                        accepted, _ = listening.accept()
                    except OSError:
                        return
                    with accepted:
                        accepted.send(says)
                        if not says:
                            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)

            hanging_up = threading.Thread(target=hang_up)
            hanging_up.start()
            try:
                for _ in range(20):
                    with pytest.raises(ConnectionFailure) as failure:
                        await dialer.dial(HOST, listening.getsockname()[1], "test")
                    assert not failure.value.sent
            finally:
                listening.shutdown(socket.SHUT_RDWR)
                hanging_up.join()

    run(dial)


@pytest.mark.parametrize("addresses", [(ANSWERS,)])
def test_a_listener_without_tls_is_named_as_such(run: Run) -> None:
    async def hang_up(talk: Talk) -> None:
        await talk.reader.read(1)

    async def dial() -> None:
        async with broker(hang_up, versions=None) as port:
            settings = wire_settings("one:9092", {"security.protocol": SecurityProtocol.SSL.value})
            with pytest.raises(ConnectionFailure, match="does this listener speak TLS"):
                await Dialer(settings).dial(HOST, port, "test")

    run(dial)


@pytest.mark.parametrize(
    ("error", "failure", "tokens"),
    [(None, Disconnected, 1), (ErrorCode.SASL_AUTHENTICATION_FAILED, CredentialsRefused, 2)],
    ids=["lost", "refused"],
)
async def test_only_a_refused_login_asks_for_another_token(
    tmp_path: Path, error: ErrorCode | None, failure: type[Exception], tokens: int
) -> None:
    """A broker that breaks the connection off during the login has not refused the token."""
    printed = tmp_path / "printed"
    print_token = f"echo token | tee -a {shlex.quote(str(printed))}"

    async def script(talk: Talk) -> None:
        await talk.answer(await talk.hear(), struct.pack(">hi", 0, 0), flexible=False)  # the mechanism
        login = await talk.hear()
        if error is not None:
            refusal = response(tuple[ErrorCode, str | None, bytes, Int64], error, "no", b"", 0)
            await talk.answer(login, refusal)

    settings = WireSettings(
        (), security=SecurityProtocol.SASL_PLAINTEXT, sasl=TokenCommand(shlex.join(["sh", "-c", print_token]))
    )
    async with broker(script) as port:
        dialer = Dialer(settings)
        for _ in range(2):
            with pytest.raises(failure):
                await dialer.dial("127.0.0.1", port, "test")
    assert printed.read_text() == "token\n" * tokens
