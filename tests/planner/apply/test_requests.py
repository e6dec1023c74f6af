"""Requests of an apply: asked again, judged, denied, and compared with what is there already."""

from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from planner.apply.context import RequestGuard, error_is_final, send_with_retries
from planner.apply.denials import denial_in_log, lines_since, naming_right
from planner.model.address import topic_address
from planner.model.step import DONE, RequestResult, Result, Step, failed
from planner.plan.steps.topics import AlterConfigs, CreateTopic, DeleteTopic, GrowPartitions, Reassign
from tests.fakes.jobs import FakeJobs
from tests.runtime.launch.specs import spec_of

OPEN = RequestGuard(stop_reason=lambda: None)


def step(name: str) -> CreateTopic:
    return CreateTopic(name, topic_address("dc1", name), "dc1", name, 1, 1, {})


def answer(code: int | None) -> "Future[None]":
    future: Future[None] = Future()
    if code is None:
        future.set_result(None)
    else:
        future.set_exception(KafkaException(KafkaError(code)))
    return future


class Broker:
    """Answers each step's requests from a script, the last line again and again."""

    def __init__(self, **script: list[int | None]) -> None:
        self.script = script
        self.asked: list[list[str]] = []

    def send(self, steps):
        self.asked.append([one.id for one in steps])
        answers = {}
        for one in steps:
            lines = self.script[one.id]
            answers[one.id] = answer(lines.pop(0) if len(lines) > 1 else lines[0])
        return answers


def test_only_what_failed_for_the_moment_is_sent_again():
    broker = Broker(a=[None], b=[KafkaError.NOT_CONTROLLER, KafkaError.REQUEST_TIMED_OUT, None])
    verdicts = send_with_retries([step("a"), step("b")], broker.send, error_is_final, OPEN)
    assert verdicts == {"a": DONE, "b": DONE}
    assert broker.asked == [["a", "b"], ["b"], ["b"]]


def test_a_refusal_by_policy_is_final():
    broker = Broker(a=[KafkaError.POLICY_VIOLATION])
    verdict = send_with_retries([step("a")], broker.send, error_is_final, OPEN)["a"]
    assert verdict.result is Result.FAILED
    assert "POLICY_VIOLATION" in verdict.why
    assert len(broker.asked) == 1


def test_a_final_error_is_judged():
    broker = Broker(a=[KafkaError.TOPIC_ALREADY_EXISTS])
    assert send_with_retries([step("a")], broker.send, lambda _step, _failure: DONE, OPEN) == {"a": DONE}


def test_throttling_is_waited_out():
    broker = Broker(a=[KafkaError.THROTTLING_QUOTA_EXCEEDED, None])
    assert send_with_retries([step("a")], broker.send, error_is_final, OPEN) == {"a": DONE}


def test_a_barred_guard_lets_nothing_through():
    broker = Broker(a=[None])
    verdicts = send_with_retries(
        [step("a")], broker.send, error_is_final, RequestGuard(lambda: "the lease is lost")
    )
    assert verdicts == {"a": RequestResult(Result.NOT_STARTED, "the lease is lost")}
    assert broker.asked == []


def test_the_guard_is_asked_before_every_try():
    answers = iter([None, "interrupted"])
    broker = Broker(a=[KafkaError.NOT_CONTROLLER])
    verdicts = send_with_retries(
        [step("a")], broker.send, error_is_final, RequestGuard(lambda: next(answers))
    )
    assert verdicts["a"].result is Result.NOT_STARTED
    assert broker.asked == [["a"]]


def test_it_gives_up_at_the_deadline_and_says_why():
    broker = Broker(a=[KafkaError.NOT_CONTROLLER])
    verdict = send_with_retries([step("a")], broker.send, error_is_final, OPEN, within=0.3)["a"]
    assert verdict.result is Result.FAILED
    assert "given up after" in verdict.why
    assert "NOT_CONTROLLER" in verdict.why


AT = topic_address("dc2", "orders")
REFUSED = "Topic authorization failed. (TOPIC_AUTHORIZATION_FAILED)"
LINE = '2026-11-22T18:57:16Z INFO driver_message message="waiting: \\"a\\" CLUSTER_AUTHORIZATION_FAILED (31)"'


@pytest.mark.parametrize(
    ("step", "right"),
    [
        (CreateTopic("1", AT, "dc2", "orders", 1, 1, {}), "CREATE on the topic orders"),
        (GrowPartitions("1", AT, "dc2", "orders", 1, 2), "ALTER on the topic orders"),
        (AlterConfigs("1", AT, "dc2", "orders"), "ALTER_CONFIGS on the topic orders"),
        (DeleteTopic("1", AT, "dc2", "orders", "id"), "DELETE on the topic orders"),
        (Reassign("1", AT, "dc2", "orders", ((1,),), ((2,),)), "ALTER on the cluster"),
    ],
)
def test_a_refused_step_names_the_right(step: Step, right: str) -> None:
    expected = f"{REFUSED} — grant {right} at dc2 to the principal of this apply"
    assert naming_right(step, failed(REFUSED)).why == expected


def test_other_results_stay_as_they_are() -> None:
    step = CreateTopic("1", AT, "dc2", "orders", 1, 1, {})
    for result in (DONE, failed("no broker answers")):
        assert naming_right(step, result) == result


def test_only_what_the_job_logged_since_its_start_counts() -> None:
    jobs = FakeJobs(mute=True, older=("before: TOPIC_AUTHORIZATION_FAILED",), log=("it starts",))
    lines = lines_since(jobs, "dc2")
    jobs.launch(spec_of("dc2"))
    assert lines() == ["it starts"]


@pytest.mark.parametrize(
    ("logged", "found"),
    [
        (["it starts"], ""),
        (
            ["a: TOPIC_AUTHORIZATION_FAILED", LINE, "more"],
            r"waiting: \"a\" CLUSTER_AUTHORIZATION_FAILED (31)",
        ),
        (["a: TOPIC_AUTHORIZATION_FAILED (29)"], "a: TOPIC_AUTHORIZATION_FAILED (29)"),
    ],
)
def test_the_message_of_the_log_is_told_without_what_stands_before_it(logged: list[str], found: str) -> None:
    assert denial_in_log(lambda: logged, every_s=0)() == found
