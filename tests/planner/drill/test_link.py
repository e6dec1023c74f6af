"""The link before a broker: real sockets to a server that answers what it is sent."""

import gc
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress

import pytest

from planner.drill.link import DrillLink

pytestmark = pytest.mark.slow


@pytest.fixture
def broker() -> Iterator[str]:
    """Echoes on one connection after the other, until it is closed."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, suppress(ConnectionResetError):
                    while data := connection.recv(100):
                        connection.sendall(data)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.fixture
def link(broker: str) -> Iterator[DrillLink]:
    with closing(DrillLink(1)) as made:
        made.start({1: broker})
        yield made


def connected(link: DrillLink) -> socket.socket:
    host, _, port = link.addresses[1].rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def test_a_cut_ends_connections_and_refuses_new_ones_until_it_is_restored(link: DrillLink) -> None:
    with connected(link) as client:
        client.sendall(b"one")
        assert client.recv(100) == b"one"
        link.cut()
        with pytest.raises(ConnectionResetError):
            client.recv(100)
    with connected(link) as client:
        assert client.recv(100) == b""
    link.restore()
    with connected(link) as client:
        client.sendall(b"two")
        assert client.recv(100) == b"two"


def test_a_slow_link_delays_answers(link: DrillLink) -> None:
    link.slow(0.1)
    with connected(link) as client:
        began = time.monotonic()
        client.sendall(b"one")
        assert client.recv(100) == b"one"
        assert time.monotonic() - began >= 0.1


def test_a_slow_link_takes_as_much_as_a_quick_one(link: DrillLink) -> None:
    sent = bytes(1 << 20)
    with socket.create_server(("127.0.0.1", 0)) as server:
        link.start({1: f"127.0.0.1:{server.getsockname()[1]}"})
        link.slow(0.1)
        began = time.monotonic()
        with connected(link) as client, server.accept()[0] as broker:
            writer = threading.Thread(target=broker.sendall, args=(sent,))
            writer.start()
            received = 0
            while received < len(sent):
                received += len(client.recv(1 << 16))
            writer.join()
    assert 0.1 <= time.monotonic() - began < 1.0  # one pause for each piece of 64 KiB takes 1.6 s


def test_connections_that_arrive_while_it_closes_are_closed_too(broker: str) -> None:
    for _ in range(10):
        with ExitStack() as clients:
            link = DrillLink(1)
            link.start({1: broker})
            arrived = [clients.enter_context(connected(link)) for _ in range(10)]
            link.close()
            for client in arrived:
                with suppress(ConnectionResetError):
                    assert client.recv(100) == b""
    gc.collect()  # warns about each socket that was left open
