"""Alters topic configs: only changed keys are sent, and setting a value twice is no error."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from confluent_kafka import KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource, ResourceType

from planner.apply.context import ApplyContext
from planner.apply.retry import REQUEST_SECONDS, error_is_final, send_with_retries
from planner.apply.visibility import FIRST_PAUSE, LONGEST_PAUSE, PROPAGATION_SECONDS
from planner.diff.values import same_value
from planner.model.outcome import RequestResult, Result, failed
from planner.model.step import AlterConfigs

_ANSWER_SECONDS = 5.0


def resource_of(step: AlterConfigs) -> ConfigResource:
    """Returns the incremental changes of one topic."""
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in sorted(step.set.items())
    ]
    entries += [
        ConfigEntry(key, "", incremental_operation=AlterConfigOpType.DELETE) for key in sorted(step.unset)
    ]
    return ConfigResource(ResourceType.TOPIC, step.topic, incremental_configs=entries)


def perform(context: ApplyContext, steps: Sequence[AlterConfigs]) -> dict[str, RequestResult]:
    """Alters the configs, and waits until every live broker shows the new values."""
    requests: list[Sequence[AlterConfigs]] = []

    def send(some: Sequence[AlterConfigs]) -> Mapping[str, "Future[None]"]:
        requests.append(some)
        wanted = {step.id: resource_of(step) for step in some}
        futures = context.client.incremental_alter_configs(
            list(wanted.values()), request_timeout=REQUEST_SECONDS
        )
        return {step_id: futures[resource] for step_id, resource in wanted.items()}

    results = send_with_retries(steps, send, error_is_final, context.guard)
    for request in requests:
        done = [step for step in request if results[step.id].result is Result.DONE]
        if done and not _wait_until_visible(context, done[-1]):
            results |= {
                step.id: failed("set, but not every broker shows it yet; apply again") for step in done
            }
    return results


def _wait_until_visible(context: ApplyContext, step: AlterConfigs) -> bool:
    """Waits until every live broker shows the new values.

    The changes of one request are one batch in the brokers' metadata log, so one topic stands for all of
    them.
    """
    deadline = time.monotonic() + PROPAGATION_SECONDS
    pause = FIRST_PAUSE
    while not _all_brokers_show(context, step):
        if time.monotonic() > deadline or context.guard.stop_reason() is not None:
            return False
        time.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)
    return True


def _all_brokers_show(context: ApplyContext, step: AlterConfigs) -> bool:
    try:
        return all(_broker_shows(context, step, broker) for broker in context.each_broker())
    except KafkaException:
        return False


def _broker_shows(context: ApplyContext, step: AlterConfigs, broker: int) -> bool:
    """Returns whether this broker shows the step's values."""
    resource = ConfigResource(ResourceType.TOPIC, step.topic)
    asked = context.client.describe_configs([resource], request_timeout=_ANSWER_SECONDS, broker=broker)
    entries: Mapping[str, ConfigEntry] = asked[resource].result()
    own = {key for key, entry in entries.items() if _is_topics_own(entry)}
    # Brokers never return a sensitive value.
    values = all(
        key in own and (entries[key].is_sensitive or same_value(key, entries[key].value, value))
        for key, value in step.set.items()
    )
    return values and not own & set(step.unset)


def _is_topics_own(entry: ConfigEntry) -> bool:
    return ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
