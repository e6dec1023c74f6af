"""Alter configs: only the keys that change are sent. Setting what is set already is no error."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from planner.apply.attempt import REQUEST_SECONDS, attempt, refused
from planner.apply.hands import Hands
from planner.model.outcome import Verdict
from planner.model.step import AlterConfigs


def resource_of(step: AlterConfigs) -> ConfigResource:
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in sorted(step.set.items())
    ]
    entries += [
        ConfigEntry(key, "", incremental_operation=AlterConfigOpType.DELETE) for key in sorted(step.unset)
    ]
    return ConfigResource(ResourceType.TOPIC, step.topic, incremental_configs=entries)


def perform(hands: Hands, steps: Sequence[AlterConfigs]) -> dict[str, Verdict]:
    def send(some: Sequence[AlterConfigs]) -> Mapping[str, "Future[None]"]:
        wanted = {step.id: resource_of(step) for step in some}
        futures = hands.client.incremental_alter_configs(
            list(wanted.values()), request_timeout=REQUEST_SECONDS
        )
        return {step_id: futures[resource] for step_id, resource in wanted.items()}

    return attempt(steps, send, refused, hands.guard)
