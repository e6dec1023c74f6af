"""Delete topics: the very ones that were planned, known by their ids."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from planner.apply.context import ApplyContext
from planner.apply.retry import REQUEST_SECONDS, send_with_retries
from planner.apply.visibility import is_gone, wait_until_visible
from planner.kafka import explain, topic_id_text
from planner.model.outcome import DONE, RequestResult, Result, failed
from planner.model.step import DeleteTopic

_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)


def perform(context: ApplyContext, steps: Sequence[DeleteTopic]) -> dict[str, RequestResult]:
    def send(some: Sequence[DeleteTopic]) -> Mapping[str, "Future[None]"]:
        futures = context.client.delete_topics(
            [step.topic for step in some],
            operation_timeout=REQUEST_SECONDS,
            request_timeout=REQUEST_SECONDS,
        )
        return {step.id: futures[step.topic] for step in some}

    def classify_error(_step: DeleteTopic, failure: KafkaException) -> RequestResult:
        return DONE if failure.args[0].code() in _UNKNOWN else failed(explain(failure))

    results = _check_topic_ids(context, steps)
    still = [step for step in steps if step.id not in results]
    results.update(send_with_retries(still, send, classify_error, context.guard))
    deleted = [step for step in still if results[step.id].result is Result.DONE]
    waiting = wait_until_visible(context, {step.topic for step in deleted}, is_gone)
    for step in deleted:
        if step.topic in waiting:
            results[step.id] = failed("deleted, but a broker still shows it; apply again")
    return results


def _check_topic_ids(context: ApplyContext, steps: Sequence[DeleteTopic]) -> dict[str, RequestResult]:
    """What must not be deleted any more, or is gone already."""
    topics = TopicCollection([step.topic for step in steps])
    answers = context.client.describe_topics(topics, request_timeout=REQUEST_SECONDS)
    results: dict[str, RequestResult] = {}
    for step in steps:
        try:
            found = topic_id_text(answers[step.topic].result().topic_id)
        except KafkaException as failure:
            known_gone = failure.args[0].code() in _UNKNOWN
            results[step.id] = DONE if known_gone else failed(explain(failure))
        else:
            if found != step.topic_id:
                why = f"another topic stands under this name now: id {found}, planned {step.topic_id}"
                results[step.id] = failed(f"{why}; plan again")
    return results
