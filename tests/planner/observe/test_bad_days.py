"""Brokers that keep silent, die while they are read, or are no brokers at all."""

import contextlib
import os
import signal
import time
from collections.abc import Callable

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
from tests.fakes.hostile_broker import Asked, Fault, HostileBroker
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


def endpoint(broker: HostileBroker, name: str = "dc1", **more: float) -> ClusterEndpoint:
    return ClusterEndpoint(name, f"127.0.0.1:{broker.port}", **more)  # type: ignore[arg-type]


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


async def hang_up(_asked: Asked) -> None:
    raise ConnectionAbortedError


SILENT = Fault(lambda _asked: ())
WEB_SERVER = Fault(lambda _asked: (b"HTTP/1.1 400 Bad Request\r\n\r\n",))


@pytest.mark.parametrize(
    ("fault", "why", "hint"),
    [
        (Fault(before=hang_up), "closed the connection before answering", "is it a Kafka broker?"),
        (WEB_SERVER, "what it answers is not Kafka's protocol", ""),
    ],
)
def test_a_port_that_is_no_broker(fault: Fault, why: str, hint: str) -> None:
    with HostileBroker(fault) as broker:
        found = unreachable(endpoint(broker))
    assert why in found.why
    assert hint in found.hint


def test_a_port_that_keeps_silent_is_given_up_in_time() -> None:
    before = time.monotonic()
    with HostileBroker(SILENT) as broker:
        found = unreachable(endpoint(broker), timeout_s=1.0)
    assert time.monotonic() - before < 9  # the time-out is 10 s where nobody names one
    assert found.silent
    assert "accepts connections but has not answered for 1 s" in found.why
    assert "--timeout" in found.hint


def test_only_who_is_given_up_is_waited_for_less() -> None:
    with HostileBroker(SILENT) as one, HostileBroker(SILENT) as other:
        given_up, patient = endpoint(one, at_most_s=0.25), endpoint(other, "dc2", at_most_s=60.0)
        found = read(given_up, patient, timeout_s=1.0).clusters
    whys = [one.why for one in found.values() if isinstance(one, Unreachable)]
    # "has not answered for 1 s", or on a busy machine "did not answer a connection attempt within 1 s"
    sooner, waited = (float(why.removesuffix(" s").rsplit(" ", 1)[-1]) for why in whys)
    assert sooner <= 0.25 < waited <= 1.0


def test_an_interrupt_ends_a_read_that_waits() -> None:
    """Ctrl-C does not wait for a silent broker."""

    async def interrupt(_asked: Asked) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    before = time.monotonic()
    with HostileBroker(replace(SILENT, before=interrupt)) as broker, pytest.raises(KeyboardInterrupt):
        read(endpoint(broker), timeout_s=60)
    assert time.monotonic() - before < 50


@pytest.mark.parametrize("killed", [True, False])
def test_a_cluster_that_dies_or_stands_still_between_names_and_details(*, killed: bool) -> None:
    wanted = ClusterDetailsRequest({"orders": frozenset()})
    with contextlib.ExitStack() as life, OldBroker(KAFKA_2_3) as other:
        dying = life.enter_context(OldBroker(KAFKA_2_3))
        dc1, dc2 = endpoint(dying), endpoint(other, "dc2")

        def details(names: Observed) -> Request:
            assert names.reachable("dc1") is not None
            dying.stands_still = True
            if killed:
                life.close()
            return {"dc1": wanted, "dc2": wanted}

        before = time.monotonic()
        found = read(dc1, dc2, timeout_s=2.0, wanted=details)
        assert time.monotonic() - before < 9  # the time-out is 10 s where nobody names one
    assert isinstance(found.clusters["dc1"], Unreachable)
    assert isinstance(found.clusters["dc2"], ObservedCluster)
