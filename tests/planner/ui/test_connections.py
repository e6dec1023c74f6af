"""Sockets that send half of a request: closed in time, and never in the way of a viewer."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from planner.ui.access import AccessPolicy
from planner.ui.connections import LIMITS, ConnectionLimits
from tests.planner.render import test_status as scenes
from tests.planner.ui.serving import Visited, fresh, serving

GUARDED = AccessPolicy("t0ken-of-sixteen-and-more")
HALVES = {
    "nothing": b"",
    "half of a line": b"GET /plan HT",
    "half of the headers": b"GET /plan HTTP/1.1\r\nHost: localhost\r\nX-Wait: 1\r\n",
    "a form without its body": b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n",
    "half of a form": b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\ntoken=",
    "half of a second request": b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\nGET /login HT",
}


@contextmanager
def connected(visited: Visited, text: bytes = b"") -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", visited.port), timeout=20) as made:
        made.sendall(text)
        yield made


def closed_after(made: socket.socket) -> float:
    """Reads until the server closes, and returns how many seconds that took."""
    begun = time.monotonic()
    try:
        while made.recv(65_536):
            pass
    except ConnectionResetError:
        pass
    return time.monotonic() - begun


@pytest.mark.parametrize("what", HALVES)
def test_half_of_a_request_is_closed_in_seconds(what: str, capfd: pytest.CaptureFixture[str]) -> None:
    limits = ConnectionLimits(head_s=0.3, body_s=0.3)
    with (
        serving(fresh(scenes.copying()), policy=GUARDED, limits=limits) as visited,
        connected(visited, HALVES[what]) as made,
    ):
        assert closed_after(made) < 5

    assert max(LIMITS.head_s, LIMITS.body_s) <= 10
    assert "Traceback" not in capfd.readouterr().err


def test_bytes_that_trickle_do_not_extend_the_time() -> None:
    limits = ConnectionLimits(head_s=0.5)
    with (
        serving(fresh(scenes.copying()), policy=GUARDED, limits=limits) as visited,
        connected(visited, b"GET / HTTP/1.1\r\nX-Slow: ") as made,
    ):
        made.settimeout(0.1)
        begun = time.monotonic()
        while time.monotonic() - begun < 10:
            try:
                made.sendall(b"x")
                if not made.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        assert time.monotonic() - begun < 5


def test_a_form_that_arrives_in_parts_is_read_and_a_connection_may_ask_twice() -> None:
    with serving(fresh(scenes.copying()), policy=GUARDED) as visited, connected(visited) as made:
        for _ in range(2):
            made.sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\n\r\ntoken")
            made.sendall(b"=wrong")
            answer = b""
            while b"This is not the token" not in answer:
                answer += made.recv(65_536)
            assert answer.startswith(b"HTTP/1.1 401")


def test_halves_of_requests_make_room_for_a_viewer_and_leave_streams_alone() -> None:
    """400 half-sent requests stayed open for 45 s once, each in a place of a viewer."""
    limits = ConnectionLimits(head_s=60, connections=40)
    with serving(fresh(scenes.copying()), limits=limits) as visited, ExitStack() as opened:
        events = opened.enter_context(visited.events())
        assert next(events) == "hello"
        halves = [opened.enter_context(connected(visited, HALVES["half of the headers"])) for _ in range(400)]
        assert visited.ask("/flow?name=one").status == 200
        assert sum(1 for one in visited.server.server_state.connections) <= 40
        assert closed_after(halves[0]) < 8
        visited.give(fresh(scenes.copying()))
        assert next(events) == "change"


def test_a_stream_stays_open_longer_than_a_request_may_take() -> None:
    limits = ConnectionLimits(head_s=0.2, body_s=0.2, idle_s=0.2)
    with serving(fresh(scenes.copying()), limits=limits) as visited, visited.events() as events:
        assert next(events) == "hello"
        with connected(visited) as made:
            closed_after(made)
        visited.give(fresh(scenes.copying()))
        assert next(events) == "change"
