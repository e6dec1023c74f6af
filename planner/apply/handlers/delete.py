"""Delete topics: the very ones that were planned, known by their ids."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from planner.apply.context import ApplyContext
from planner.apply.retry import REQUEST_SECONDS, attempt
from planner.apply.visibility import await_everywhere, gone
from planner.kafka import explain, topic_id_text
from planner.model.outcome import DONE, RequestResult, Result, failed
from planner.model.step import DeleteTopic

_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)


def perform(hands: ApplyContext, steps: Sequence[DeleteTopic]) -> dict[str, RequestResult]:
    def send(some: Sequence[DeleteTopic]) -> Mapping[str, "Future[None]"]:
        futures = hands.client.delete_topics(
            [step.topic for step in some],
            operation_timeout=REQUEST_SECONDS,
            request_timeout=REQUEST_SECONDS,
        )
        return {step.id: futures[step.topic] for step in some}

    def judge(_step: DeleteTopic, failure: KafkaException) -> RequestResult:
        return DONE if failure.args[0].code() in _UNKNOWN else failed(explain(failure))

    verdicts = _look_first(hands, steps)
    still = [step for step in steps if step.id not in verdicts]
    verdicts.update(attempt(still, send, judge, hands.guard))
    deleted = [step for step in still if verdicts[step.id].result is Result.DONE]
    waiting = await_everywhere(hands, {step.topic for step in deleted}, gone)
    for step in deleted:
        if step.topic in waiting:
            verdicts[step.id] = failed("deleted, but a broker still shows it; apply again")
    return verdicts


def _look_first(hands: ApplyContext, steps: Sequence[DeleteTopic]) -> dict[str, RequestResult]:
    """What must not be deleted any more, or is gone already."""
    topics = TopicCollection([step.topic for step in steps])
    answers = hands.client.describe_topics(topics, request_timeout=REQUEST_SECONDS)
    verdicts: dict[str, RequestResult] = {}
    for step in steps:
        try:
            found = topic_id_text(answers[step.topic].result().topic_id)
        except KafkaException as failure:
            known_gone = failure.args[0].code() in _UNKNOWN
            verdicts[step.id] = DONE if known_gone else failed(explain(failure))
        else:
            if found != step.topic_id:
                why = f"another topic stands under this name now: id {found}, planned {step.topic_id}"
                verdicts[step.id] = failed(f"{why}; plan again")
    return verdicts
