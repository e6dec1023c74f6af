"""Add partitions."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.cimpl import NewPartitions

from planner.apply.context import ApplyContext
from planner.apply.retry import REQUEST_SECONDS, send_with_retries
from planner.apply.visibility import has_leaders, wait_until_visible
from planner.kafka import explain
from planner.model.outcome import DONE, RequestResult, Result, failed
from planner.model.step import GrowPartitions


def perform(context: ApplyContext, steps: Sequence[GrowPartitions]) -> dict[str, RequestResult]:
    def send(some: Sequence[GrowPartitions]) -> Mapping[str, "Future[None]"]:
        futures = context.client.create_partitions(
            [NewPartitions(step.topic, step.new) for step in some],
            operation_timeout=REQUEST_SECONDS,
            request_timeout=REQUEST_SECONDS,
        )
        return {step.id: futures[step.topic] for step in some}

    def classify_error(step: GrowPartitions, failure: KafkaException) -> RequestResult:
        if failure.args[0].code() == KafkaError.INVALID_PARTITIONS and _partitions(context, step) == step.new:
            return DONE
        return failed(explain(failure))

    results = send_with_retries(steps, send, classify_error, context.guard)
    grown = [step for step in steps if results[step.id].result is Result.DONE]
    waiting = wait_until_visible(
        context, {step.topic for step in grown}, has_leaders({step.topic: step.new for step in grown})
    )
    for step in grown:
        if step.topic in waiting:
            results[step.id] = failed(f"grown, but not everywhere yet: {waiting[step.topic]}; apply again")
    return results


def _partitions(context: ApplyContext, step: GrowPartitions) -> int | None:
    try:
        return len(
            context.client.list_topics(step.topic, timeout=REQUEST_SECONDS).topics[step.topic].partitions
        )
    except KafkaException:
        return None
