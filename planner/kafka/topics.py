"""The ids and the configs of topics as a topology names them."""

import base64
import functools
from collections.abc import Iterable, Mapping

from planner.kafka.client import BrokerConnection, ClusterClient
from planner.kafka.failures import RequestRefused
from planner.model.observed import ConfigSource, ConfigValue
from runtime.contract.spec.naming import NO_TOPIC_ID
from runtime.kafka.protocol.configs import (
    DEFAULT,
    DYNAMIC_TOPIC,
    TOPIC,
    ConfigEntry,
    DescribeConfigsRequest,
)

_MOST_VALUES = 100_000
_SOURCES = {DYNAMIC_TOPIC: ConfigSource.TOPIC, DEFAULT: ConfigSource.DEFAULT}


def topic_id_text(value: bytes) -> str:
    """Returns a topic id as Kafka's tools write it; "" if the broker is too old for ids."""
    return "" if value == NO_TOPIC_ID else base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def topic_id_of(text: str) -> bytes:
    """Returns the topic id of a text of `topic_id_text`. Raises ValueError for another text."""
    return base64.urlsafe_b64decode(f"{text}==") if text else NO_TOPIC_ID


def config_values(entries: Iterable[ConfigEntry]) -> dict[str, ConfigValue]:
    """Returns the values by their keys. Equal ones are one object."""
    return {
        entry.key: _config_value(entry.value, entry.source, entry.sensitive, entry.read_only)
        for entry in entries
    }


@functools.lru_cache(_MOST_VALUES)
def _config_value(value: str | None, source: int, sensitive: bool, read_only: bool) -> ConfigValue:
    return ConfigValue(value, _SOURCES.get(source, ConfigSource.BROKER), sensitive, read_only)


async def describe_topic(broker: ClusterClient | BrokerConnection, topic: str) -> Mapping[str, ConfigValue]:
    """Returns all configs of a topic, as any broker shows them, or as this one does."""
    request = DescribeConfigsRequest(TOPIC, [topic])
    asking = broker.ask(request) if isinstance(broker, ClusterClient) else broker.call(request)
    (described,) = await asking
    if described.error:
        raise RequestRefused(described.error, described.message)
    return config_values(described.entries)
