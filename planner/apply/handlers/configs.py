"""Alter configs: only the keys that change are sent. Setting what is set already is no error."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from confluent_kafka import KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource, ResourceType

from planner.apply.context import ApplyContext
from planner.apply.retry import REQUEST_SECONDS, attempt, refused
from planner.apply.visibility import FIRST_PAUSE, LONGEST_PAUSE, PROPAGATION_SECONDS
from planner.diff.values import same_value
from planner.model.outcome import RequestResult, Result, failed
from planner.model.step import AlterConfigs

_ANSWER_SECONDS = 5.0


def resource_of(step: AlterConfigs) -> ConfigResource:
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in sorted(step.set.items())
    ]
    entries += [
        ConfigEntry(key, "", incremental_operation=AlterConfigOpType.DELETE) for key in sorted(step.unset)
    ]
    return ConfigResource(ResourceType.TOPIC, step.topic, incremental_configs=entries)


def perform(hands: ApplyContext, steps: Sequence[AlterConfigs]) -> dict[str, RequestResult]:
    requests: list[Sequence[AlterConfigs]] = []

    def send(some: Sequence[AlterConfigs]) -> Mapping[str, "Future[None]"]:
        requests.append(some)
        wanted = {step.id: resource_of(step) for step in some}
        futures = hands.client.incremental_alter_configs(
            list(wanted.values()), request_timeout=REQUEST_SECONDS
        )
        return {step_id: futures[resource] for step_id, resource in wanted.items()}

    verdicts = attempt(steps, send, refused, hands.guard)
    for request in requests:
        done = [step for step in request if verdicts[step.id].result is Result.DONE]
        if done and not _await_everywhere(hands, done[-1]):
            verdicts |= {step.id: failed("set, but not everywhere yet; apply again") for step in done}
    return verdicts


def _await_everywhere(hands: ApplyContext, step: AlterConfigs) -> bool:
    """Until every live broker tells the new values. A request's changes are one batch of the brokers' log of
    metadata, so one topic speaks for all of it."""
    deadline = time.monotonic() + PROPAGATION_SECONDS
    pause = FIRST_PAUSE
    while not _everywhere(hands, step):
        if time.monotonic() > deadline or hands.guard.barred() is not None:
            return False
        time.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)
    return True


def _everywhere(hands: ApplyContext, step: AlterConfigs) -> bool:
    try:
        return all(_told(hands, step, broker) for broker in hands.each_broker())
    except KafkaException:
        return False


def _told(hands: ApplyContext, step: AlterConfigs, broker: int) -> bool:
    resource = ConfigResource(ResourceType.TOPIC, step.topic)
    asked = hands.client.describe_configs([resource], request_timeout=_ANSWER_SECONDS, broker=broker)
    entries: Mapping[str, ConfigEntry] = asked[resource].result()
    own = {key for key, entry in entries.items() if _is_topics_own(entry)}
    # A sensitive value is told by nobody.
    values = all(
        key in own and (entries[key].is_sensitive or same_value(key, entries[key].value, value))
        for key, value in step.set.items()
    )
    return values and not own & set(step.unset)


def _is_topics_own(entry: ConfigEntry) -> bool:
    return ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
