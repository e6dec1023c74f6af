"""Add partitions."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.cimpl import NewPartitions

from planner.apply.context import ApplyContext
from planner.apply.retry import REQUEST_SECONDS, attempt
from planner.apply.visibility import await_everywhere, led
from planner.kafka import explain
from planner.model.outcome import DONE, RequestResult, Result, failed
from planner.model.step import GrowPartitions


def perform(hands: ApplyContext, steps: Sequence[GrowPartitions]) -> dict[str, RequestResult]:
    def send(some: Sequence[GrowPartitions]) -> Mapping[str, "Future[None]"]:
        futures = hands.client.create_partitions(
            [NewPartitions(step.topic, step.new) for step in some],
            operation_timeout=REQUEST_SECONDS,
            request_timeout=REQUEST_SECONDS,
        )
        return {step.id: futures[step.topic] for step in some}

    def judge(step: GrowPartitions, failure: KafkaException) -> RequestResult:
        if failure.args[0].code() == KafkaError.INVALID_PARTITIONS and _partitions(hands, step) == step.new:
            return DONE
        return failed(explain(failure))

    verdicts = attempt(steps, send, judge, hands.guard)
    grown = [step for step in steps if verdicts[step.id].result is Result.DONE]
    waiting = await_everywhere(
        hands, {step.topic for step in grown}, led({step.topic: step.new for step in grown})
    )
    for step in grown:
        if step.topic in waiting:
            verdicts[step.id] = failed(f"grown, but not everywhere yet: {waiting[step.topic]}; apply again")
    return verdicts


def _partitions(hands: ApplyContext, step: GrowPartitions) -> int | None:
    try:
        return len(
            hands.client.list_topics(step.topic, timeout=REQUEST_SECONDS).topics[step.topic].partitions
        )
    except KafkaException:
        return None
