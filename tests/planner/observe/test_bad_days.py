"""Brokers that keep silent, die while they are read, or are no brokers at all."""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from planner.kafka import ClusterEndpoint
from planner.model.observed import (
    ClusterDetailsRequest,
    Observed,
    ObservedCluster,
    Request,
    Unreachable,
)
from planner.observe.cluster import ReadOptions
from planner.observe.observer import names_only
from tests.endpoints import observed
from tests.fakes.old_broker import OldBroker
from tests.fakes.replacing import replace
from tests.fakes.tables import cases
from tests.planner.observe.test_old_brokers import KAFKA_2_3


def read(
    *endpoints: ClusterEndpoint,
    timeout_s: float = 10.0,
    wanted: Callable[[Observed], Request] = names_only,
) -> Observed:
    return observed({one.cluster: one for one in endpoints}, wanted, ReadOptions(timeout_s))


def unreachable(one: ClusterEndpoint, timeout_s: float = 10.0) -> Unreachable:
    found = read(one, timeout_s=timeout_s).clusters[one.cluster]
    assert isinstance(found, Unreachable), found
    return found


@pytest.fixture
def listener() -> Iterator["Listen"]:
    """listener(what a port does with each connection) → the endpoint of that port."""
    opened: list[socket.socket] = []

    def listen(behave: Callable[[socket.socket], object]) -> ClusterEndpoint:
        server = socket.create_server(("127.0.0.1", 0))
        opened.append(server)

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                opened.append(connection)
                if behave(connection) is not KEEP:
                    connection.close()

        threading.Thread(target=serve, daemon=True).start()
        return ClusterEndpoint("dc1", f"127.0.0.1:{server.getsockname()[1]}")

    yield listen
    for one in opened:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


Listen = Callable[[Callable[[socket.socket], object]], ClusterEndpoint]
KEEP = "keep the connection open, and say nothing"


@cases(
    "bootstrap why hint",
    {
        "a host that nobody knows": (
            "no-such-host.invalid:9092",
            "the host name no-such-host.invalid is not known",
            "look at the cluster's bootstrap",
        ),
        "a bootstrap that is none": ("broker", "is not host:port", ""),
    },
)
def test_an_address_that_leads_nowhere(bootstrap: str, why: str, hint: str) -> None:
    found = unreachable(ClusterEndpoint("dc1", bootstrap))
    assert why in found.why
    assert hint in found.hint


def hangs_up(_connection: socket.socket) -> None:
    """Closes the connection before any answer."""


def web_server(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize(
    ("behave", "why", "hint"),
    [
        (hangs_up, "closed the connection before answering", "is it a Kafka broker?"),
        (web_server, "what it answers is not Kafka's protocol", ""),
    ],
)
def test_a_port_that_is_no_broker(listener: Listen, behave, why: str, hint: str) -> None:
    found = unreachable(listener(behave))
    assert why in found.why
    assert hint in found.hint


def test_a_port_that_keeps_silent_is_given_up_in_time(listener: Listen) -> None:
    before = time.monotonic()
    found = unreachable(listener(lambda connection: KEEP), timeout_s=1.0)
    assert time.monotonic() - before < 9  # the time-out is 10 s where nobody names one
    assert found.silent
    assert "accepts connections but has not answered for 1 s" in found.why
    assert "--timeout" in found.hint


def test_only_who_is_given_up_is_waited_for_less(listener: Listen) -> None:
    dc1, dc2 = (replace(listener(lambda connection: KEEP), cluster=name) for name in ("dc1", "dc2"))
    given_up, patient = replace(dc1, at_most_s=0.25), replace(dc2, at_most_s=60.0)
    found = read(given_up, patient, timeout_s=1.0).clusters
    whys = [one.why for one in found.values() if isinstance(one, Unreachable)]
    # "has not answered for 1 s", or on a busy machine "did not answer a connection attempt within 1 s"
    sooner, waited = (float(why.removesuffix(" s").rsplit(" ", 1)[-1]) for why in whys)
    assert sooner <= 0.25 < waited <= 1.0


def test_an_interrupt_ends_a_read_that_waits(listener: Listen) -> None:
    """Ctrl-C does not wait for a silent broker."""

    def hold(connection: socket.socket) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return KEEP

    silent = listener(hold)
    before = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        read(silent, timeout_s=60)
    assert time.monotonic() - before < 50


@pytest.mark.parametrize("killed", [True, False])
def test_a_cluster_that_dies_or_stands_still_between_names_and_details(*, killed: bool) -> None:
    wanted = ClusterDetailsRequest({"orders": frozenset()})
    with OldBroker(KAFKA_2_3) as dying, OldBroker(KAFKA_2_3) as other:
        dc1, dc2 = (
            ClusterEndpoint(name, f"127.0.0.1:{broker.port}")
            for name, broker in (("dc1", dying), ("dc2", other))
        )

        def details(names: Observed) -> Request:
            assert names.reachable("dc1") is not None
            dying.stands_still = True
            if killed:
                dying.die()
            return {"dc1": wanted, "dc2": wanted}

        before = time.monotonic()
        found = read(dc1, dc2, timeout_s=1.0, wanted=details)
        assert time.monotonic() - before < 9  # the time-out is 10 s where nobody names one
    assert isinstance(found.clusters["dc1"], Unreachable)
    assert isinstance(found.clusters["dc2"], ObservedCluster)
