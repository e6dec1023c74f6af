"""The ids and the configs of topics as a topology names them."""

import base64
from collections.abc import Mapping

from planner.kafka.client import BrokerConnection, ClusterClient
from planner.kafka.failures import RequestRefused
from planner.model.observed import ConfigSource, ConfigValue
from runtime.contract.spec.naming import NO_TOPIC_ID
from runtime.kafka.protocol.config_entries import (
    DEFAULT,
    DYNAMIC_TOPIC,
    TOPIC,
    Decoder,
    DescribeConfigsRequest,
)

_SOURCES = {DYNAMIC_TOPIC: ConfigSource.TOPIC, DEFAULT: ConfigSource.DEFAULT}


def topic_id_text(value: bytes) -> str:
    """Returns a topic id as Kafka's tools write it; "" if the broker is too old for ids."""
    return "" if value == NO_TOPIC_ID else base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def config_decoder() -> Decoder[ConfigValue]:
    """Returns a decoder of values, which shares equal ones between topics."""
    return Decoder(
        lambda text, source, sensitive, read_only: ConfigValue(
            text, _SOURCES.get(source, ConfigSource.BROKER), sensitive, read_only
        )
    )


def every_key(_key: str, _explicit: bool) -> bool:
    return True


async def describe_topic(broker: ClusterClient | BrokerConnection, topic: str) -> Mapping[str, ConfigValue]:
    """Returns all configs of a topic, as any broker shows them, or as this one does."""
    request = DescribeConfigsRequest(TOPIC, [topic], None, lambda _: every_key, config_decoder())
    asking = broker.ask(request) if isinstance(broker, ClusterClient) else broker.call(request)
    (described,) = (await asking).resources
    if described.error:
        raise RequestRefused(described.error, described.message)
    return described.config
