"""Moving replicas and altering quotas: what is sent, what is refused, and what may pass."""

import struct
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from planner.apply.context import ApplyContext, RequestGuard
from planner.apply.handlers.principals import alter_quota
from planner.kafka import ClusterEndpoint, ReassignmentFailure, explain, is_transient, move_replicas
from planner.kafka.admin_requests import LimitsChange, alter_quotas, quotas_at_each_broker, quotas_of
from planner.kafka.connection_errors import Unreadable
from planner.model.address import Address, Kind
from planner.model.step import RequestResult, Result
from planner.model.topology import QuotaEntity
from planner.plan.steps.quotas import AlterQuota
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

APP = QuotaEntity("app", "<default>")
CHANGE = LimitsChange(APP, {"producer_byte_rate": 10_000_000}, ["request_percentage"])
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


def test_what_the_brokers_take_is_no_refusal() -> None:
    with HostileBroker(answering(altered())) as broker:
        assert alter_quotas(endpoint(broker), [CHANGE], validate_only=True) == [None]
    (asked,) = (one for one in broker.asked if one.api == ALTER_QUOTAS)
    assert b"producer_byte_rate" + struct.pack(">d", 1e7) + b"\0" in asked.body
    assert b"request_percentage" + struct.pack(">d", 0) + b"\1" in asked.body
    assert asked.body.endswith(b"\1\0")  # only checked


@pytest.mark.parametrize(
    ("error", "message", "said", "passing"),
    [
        (INVALID_REQUEST, "Invalid configuration key x", "Invalid configuration key x", False),
        (NOT_CONTROLLER, None, "not controller", True),
    ],
)
def test_a_refusal_is_told_with_whether_it_may_pass(
    error: int, message: str | None, said: str, passing: bool
) -> None:
    with HostileBroker(answering(altered(error, message))) as broker:
        (refusal,) = alter_quotas(endpoint(broker), [CHANGE])
    assert refusal is not None
    assert said in explain(refusal)
    assert is_transient(refusal) is passing


def test_a_cluster_that_does_not_answer_may_come_back() -> None:
    with HostileBroker(answering(altered())) as broker:
        gone = endpoint(broker)
    with pytest.raises(KafkaException, match="nothing listens there") as failure:
        alter_quotas(gone, [CHANGE])
    assert is_transient(failure.value)


def test_a_setting_that_is_not_allowed_stays_refused() -> None:
    wrong = ClusterEndpoint("dc1", "127.0.0.1:1", {"security.protocol": "NONE"})
    with pytest.raises(KafkaException, match=r"security\.protocol") as failure:
        alter_quotas(wrong, [CHANGE])
    assert failure.value.args[0].code() == KafkaError._INVALID_ARG
    assert not is_transient(failure.value)


def test_the_limits_of_each_live_broker_are_read() -> None:
    with HostileBroker(answering(limits=(1_048_576.0,))) as broker:
        assert quotas_at_each_broker(endpoint(broker)) == {1: {APP: {"producer_byte_rate": 1_048_576}}}


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


STEP = AlterQuota(
    "alter:quota.dc1.user/app",
    Address(Kind.QUOTA, "dc1", APP.name),
    "dc1",
    APP,
    {"producer_byte_rate": 10_000_000},
    ("request_percentage",),
)


class Registry:
    def write(self, own: object = (), disown: object = ()) -> None:
        raise AssertionError("a handler of quotas registers nothing")


def done(broker: HostileBroker, stops: list[str | None]) -> RequestResult:
    """What the handler says; `stops` are the answers of the guard, the last one stays."""

    def stop_reason() -> str | None:
        return stops.pop(0) if len(stops) > 1 else stops[0]

    context = ApplyContext(endpoint(broker), Registry(), RequestGuard(stop_reason), "digest", lambda: 0)
    return alter_quota(context, [STEP])[STEP.id]


def test_apply_waits_until_the_broker_shows_the_limit() -> None:
    with HostileBroker(answering(altered(), limits=(1.0, 1.0, 1e7))) as broker:
        assert done(broker, [None]).result is Result.DONE
    assert sum(one.api == DESCRIBE_QUOTAS for one in broker.asked) == 3


def test_what_may_pass_is_sent_again() -> None:
    with HostileBroker(answering(altered(NOT_CONTROLLER), altered(), limits=(1e7,))) as broker:
        assert done(broker, [None]).result is Result.DONE
    assert sum(one.api == ALTER_QUOTAS for one in broker.asked) == 2


def test_a_refused_limit_fails_its_step() -> None:
    with HostileBroker(answering(altered(INVALID_REQUEST, "no such key"))) as broker:
        told = done(broker, [None])
    assert told.result is Result.FAILED
    assert "no such key" in told.why


def test_a_limit_that_no_broker_shows_is_told_when_the_apply_ends() -> None:
    with HostileBroker(answering(altered(), limits=(1.0,))) as broker:
        assert done(broker, [None, "interrupted"]) == RequestResult(
            Result.FAILED, "broker 1 does not show it yet"
        )


WANTED = {("orders", 0): [2, 1], ("orders", 1): [1, 2]}
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


def test_a_move_may_be_tried_again_where_no_broker_answers() -> None:
    with HostileBroker(answers()) as broker:
        port = broker.port
    with pytest.raises(ReassignmentFailure, match="nothing listens there") as failure:
        moved(port)
    assert failure.value.transient


def test_a_move_by_a_wrong_setting_stays_refused() -> None:
    wrong = ClusterEndpoint("dc1", "127.0.0.1:1", {"security.protocol": "NONE"})
    with pytest.raises(ReassignmentFailure, match=r"security\.protocol") as failure:
        move_replicas(wrong, WANTED)
    assert not failure.value.transient
