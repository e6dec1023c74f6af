"""Create topics, and see them everywhere before the next step may use them."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic

from planner.apply.attempt import REQUEST_SECONDS, attempt
from planner.apply.hands import Hands
from planner.apply.visible import await_everywhere, led
from planner.kafka import explain
from planner.model.outcome import DONE, Result, Verdict, failed
from planner.model.step import CreateTopic

_BROKERS_OWN = -1


def perform(hands: Hands, steps: Sequence[CreateTopic]) -> dict[str, Verdict]:
    def send(some: Sequence[CreateTopic]) -> Mapping[str, "Future[None]"]:
        wanted = [
            NewTopic(
                step.topic,
                num_partitions=step.partitions or _BROKERS_OWN,
                replication_factor=step.replication or _BROKERS_OWN,
                config=dict(step.config),
            )
            for step in some
        ]
        futures = hands.client.create_topics(
            wanted, operation_timeout=REQUEST_SECONDS, request_timeout=REQUEST_SECONDS
        )
        return {step.id: futures[step.topic] for step in some}

    def judge(step: CreateTopic, failure: KafkaException) -> Verdict:
        if failure.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return _as_wanted(hands, step)
        return failed(explain(failure))

    verdicts = attempt(steps, send, judge, hands.guard)
    made = [step for step in steps if verdicts[step.id].result is Result.DONE]
    waiting = await_everywhere(
        hands,
        {step.topic for step in made},
        led({step.topic: step.partitions or 1 for step in made}),
    )
    for step in made:
        if step.topic in waiting:
            verdicts[step.id] = failed(f"created, but not everywhere yet: {waiting[step.topic]}; apply again")
    return verdicts


def _as_wanted(hands: Hands, step: CreateTopic) -> Verdict:
    """It exists: from an earlier try of this very step, or made by somebody else otherwise than planned."""
    try:
        known = hands.client.list_topics(step.topic, timeout=REQUEST_SECONDS).topics[step.topic]
        resource = ConfigResource(ResourceType.TOPIC, step.topic)
        entries = hands.client.describe_configs([resource], request_timeout=REQUEST_SECONDS)[
            resource
        ].result()
    except KafkaException as failure:
        return failed(f"it exists already, and could not be compared: {explain(failure)}")
    different = [
        f"{key} is {entries[key].value if key in entries else 'not set'} instead of {value}"
        for key, value in sorted(step.config.items())
        if key not in entries or entries[key].value != value
    ]
    if step.partitions is not None and len(known.partitions) != step.partitions:
        different.insert(0, f"it has {len(known.partitions)} partitions instead of {step.partitions}")
    if different:
        return failed(f"it was created by somebody else since the plan: {'; '.join(different)}; plan again")
    return DONE
