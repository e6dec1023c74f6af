"""Moving replicas and altering quotas: what is sent, what is refused, and what may pass."""

import struct
from collections.abc import Callable

import pytest

from planner.kafka import ClusterEndpoint, ClusterFailure, run
from planner.kafka.changes import change_request
from planner.kafka.failures import RequestRefused, Unreadable
from planner.kafka.principals import quotas_of
from planner.model.address import Address, Kind, topic_address
from planner.model.step import Result, Step, StepResult
from planner.model.topology import QuotaEntity
from planner.plan.steps.quotas import AlterQuota
from planner.plan.steps.topics import Reassign
from runtime.kafka.protocol.administration import QuotaEntry
from tests.fakes.hostile_broker import (
    ALTER_QUOTAS,
    ALTER_REASSIGNMENTS,
    DESCRIBE_QUOTAS,
    Asked,
    Fault,
    HostileBroker,
    framed,
    uvarint,
)
from tests.planner.apply.handling import carried_out, context, no_registry

APP = QuotaEntity("app", "<default>")
INVALID_REQUEST, NOT_CONTROLLER = 42, 41


def text(words: str | None) -> bytes:
    return b"\0" if words is None else uvarint(len(words) + 1) + words.encode()


ENTITY = uvarint(3) + text("user") + text("app") + b"\0" + text("client-id") + text(None) + b"\0"


def altered(error: int = 0, message: str | None = None) -> bytes:
    return struct.pack(">i", 0) + uvarint(2) + struct.pack(">h", error) + text(message) + ENTITY + b"\0\0"


def described(limit: float) -> bytes:
    value = uvarint(2) + text("producer_byte_rate") + struct.pack(">d", limit) + b"\0"
    return struct.pack(">ih", 0, 0) + text(None) + uvarint(2) + ENTITY + value + b"\0\0"


def answering(*answers: bytes, limits: tuple[float, ...] = ()) -> Fault:
    """Answers each alteration, and each reading, with the next that is left; the last one stays."""
    left = {ALTER_QUOTAS: list(answers), DESCRIBE_QUOTAS: [described(one) for one in limits]}

    def reply(asked: Asked) -> tuple[bytes, ...] | None:
        known = left.get(asked.api)
        if not known:
            return None
        return (framed(asked, known.pop(0) if len(known) > 1 else known[0]),)

    return Fault(reply)


def endpoint(broker: HostileBroker) -> ClusterEndpoint:
    return ClusterEndpoint("dc1", f"127.0.0.1:{broker.port}")


STEP = AlterQuota(
    "alter:quota.dc1.user/app",
    Address(Kind.QUOTA, "dc1", APP.name),
    "dc1",
    APP,
    {"producer_byte_rate": 10_000_000},
    ("request_percentage",),
)


def refusal(at: ClusterEndpoint, step: Step) -> RequestRefused | None:
    """The refusal of a step that is sent once. Raises ClusterFailure."""

    async def sent() -> RequestRefused | None:
        made = context(at)
        try:
            return (await made.send([step])).get(step.id)
        finally:
            made.close()

    return run(sent())


def test_what_the_brokers_take_is_no_refusal() -> None:
    with HostileBroker(answering(altered())) as broker:
        assert refusal(endpoint(broker), STEP) is None
    (asked,) = (one for one in broker.asked if one.api == ALTER_QUOTAS)
    assert b"producer_byte_rate" + struct.pack(">d", 1e7) + b"\0" in asked.body
    assert b"request_percentage" + struct.pack(">d", 0) + b"\1" in asked.body
    assert asked.body.endswith(b"\0\0")
    checked = change_request([STEP], 1_000, validate_only=True).frame(1, 0, "repl")
    assert b"".join(checked).endswith(b"\1\0")


def test_a_cluster_that_does_not_answer_may_come_back() -> None:
    with HostileBroker(answering(altered())) as broker:
        gone = endpoint(broker)
    with pytest.raises(ClusterFailure, match="nothing listens there") as failure:
        refusal(gone, STEP)
    assert failure.value.transient


def test_a_setting_that_is_not_allowed_stays_refused() -> None:
    wrong = ClusterEndpoint("dc1", "127.0.0.1:1", {"security.protocol": "NONE"})
    with pytest.raises(ClusterFailure, match=r"security\.protocol") as failure:
        refusal(wrong, STEP)
    assert not failure.value.transient


def test_entities_that_no_topology_names_are_left_out() -> None:
    entries = [
        QuotaEntry({"user": None}, {"producer_byte_rate": 0.5}),
        QuotaEntry({"user": "<default>"}, {"producer_byte_rate": 1.0}),
        QuotaEntry({"tenant": "a"}, {"producer_byte_rate": 1.0}),
        QuotaEntry({"user": "empty"}, {}),
    ]
    assert quotas_of(entries, "dc1") == {QuotaEntity("<default>"): {"producer_byte_rate": 0.5}}
    with pytest.raises(Unreadable, match="nan is no number"):
        quotas_of([QuotaEntry({"user": "a"}, {"producer_byte_rate": float("nan")})], "dc1")


def done(broker: HostileBroker, *stops: str | None) -> StepResult:
    """What the handler says; `stops` are the answers of the guard, the last one stays."""
    return carried_out(context(endpoint(broker), no_registry, *stops), STEP)[STEP.id]


def test_apply_waits_until_the_broker_shows_the_limit() -> None:
    with HostileBroker(answering(altered(), limits=(1.0, 1.0, 1e7))) as broker:
        assert done(broker).result is Result.DONE
    assert sum(one.api == DESCRIBE_QUOTAS for one in broker.asked) == 3


def test_a_limit_that_no_broker_shows_is_told_when_the_apply_ends() -> None:
    with HostileBroker(answering(altered(), limits=(1.0,))) as broker:
        assert done(broker, None, "interrupted") == StepResult(Result.FAILED, "broker 1 does not show it yet")


MOVE = Reassign(
    "move:orders", topic_address("dc1", "orders"), "dc1", "orders", ((2, 1), (1, 2)), ((1, 2), (1, 2))
)
BAD_REPLICAS = 39


def answers(error: int = 0, partition_error: int = 0) -> Fault:
    def reply(asked: Asked) -> tuple[bytes, ...] | None:
        if asked.api != ALTER_REASSIGNMENTS:
            return None
        partition = struct.pack(">ih", 1, partition_error) + text("brokers 7 are not known") + b"\0"
        topic = text("orders") + uvarint(2) + partition + b"\0"
        body = struct.pack(">ih", 0, error) + b"\0" + uvarint(2) + topic + b"\0"
        return (framed(asked, body),)

    return Fault(reply)


@pytest.mark.parametrize(
    ("step", "fault", "why", "transient"),
    [
        (
            STEP,
            lambda: answering(altered(INVALID_REQUEST, "Invalid configuration key x")),
            "Invalid configuration key x (INVALID_REQUEST)",
            False,
        ),
        (STEP, lambda: answering(altered(NOT_CONTROLLER)), "not controller (NOT_CONTROLLER)", True),
        (
            MOVE,
            lambda: answers(partition_error=BAD_REPLICAS),
            "partition 1 of orders: brokers 7 are not known (INVALID_REPLICA_ASSIGNMENT)",
            False,
        ),
        (MOVE, lambda: answers(error=NOT_CONTROLLER), "not controller (NOT_CONTROLLER)", True),
    ],
    ids=["quota", "quota, for a moment", "partition", "move, for a moment"],
)
def test_a_refusal_is_told_with_whether_it_may_pass(
    step: Step, fault: Callable[[], Fault], why: str, transient: bool
) -> None:
    with HostileBroker(fault()) as broker:
        refused = refusal(endpoint(broker), step)
    assert refused is not None
    assert (refused.why, refused.transient) == (why, transient)
