"""Which errors are asked again, which are judged, and that nothing is sent past the guard."""

from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException

from planner.apply.context import RequestGuard, error_is_final, send_with_retries
from planner.model.address import topic_address
from planner.model.step import DONE, CreateTopic, RequestResult, Result

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
