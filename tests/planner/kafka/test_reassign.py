"""Moving replicas: the controller is asked, and what it refuses is told."""

import struct
from collections.abc import Callable

import pytest

from planner.kafka import ClusterEndpoint, ReassignmentFailure, move_replicas
from tests.fakes.hostile_broker import ALTER_REASSIGNMENTS, Asked, Fault, HostileBroker, framed, uvarint

WANTED = {("orders", 0): [2, 1], ("orders", 1): [1, 2]}
NOT_CONTROLLER, BAD_REPLICAS = 41, 39


def answers(error: int = 0, partition_error: int = 0) -> Fault:
    def reply(asked: Asked) -> tuple[bytes, ...] | None:
        if asked.api != ALTER_REASSIGNMENTS:
            return None
        partition = struct.pack(">ih", 1, partition_error) + text("brokers 7 are not known") + b"\0"
        topic = text("orders") + uvarint(2) + partition + b"\0"
        body = struct.pack(">ih", 0, error) + b"\0" + uvarint(2) + topic + b"\0"
        return (framed(asked, body),)

    return Fault(reply)


def text(words: str) -> bytes:
    return uvarint(len(words) + 1) + words.encode()


def moved(port: int) -> None:
    move_replicas(ClusterEndpoint("dc1", f"127.0.0.1:{port}"), WANTED, timeout_s=20.0)


def test_what_the_controller_takes_is_done() -> None:
    with HostileBroker(answers()) as broker:
        moved(broker.port)
    (asked,) = (one for one in broker.asked if one.api == ALTER_REASSIGNMENTS)
    assert b"orders" in asked.body


@pytest.mark.parametrize(
    ("fault", "why", "transient"),
    [
        (
            lambda: answers(partition_error=BAD_REPLICAS),
            "partition 1 of orders: invalid replica assignment: brokers 7 are not known",
            False,
        ),
        (lambda: answers(error=NOT_CONTROLLER), "not controller", True),
    ],
    ids=["partition", "request"],
)
def test_a_refusal_is_told(fault: Callable[[], Fault], why: str, transient: bool) -> None:
    with HostileBroker(fault()) as broker, pytest.raises(ReassignmentFailure, match=why) as failure:
        moved(broker.port)
    assert failure.value.transient is transient


def test_a_cluster_that_does_not_answer_may_come_back() -> None:
    with HostileBroker(answers()) as broker:
        port = broker.port
    with pytest.raises(ReassignmentFailure, match="nothing listens there") as failure:
        moved(port)
    assert failure.value.transient


def test_a_setting_that_is_not_allowed_stays_refused() -> None:
    wrong = ClusterEndpoint("dc1", "127.0.0.1:1", {"security.protocol": "NONE"})
    with pytest.raises(ReassignmentFailure, match=r"security\.protocol") as failure:
        move_replicas(wrong, WANTED)
    assert not failure.value.transient
