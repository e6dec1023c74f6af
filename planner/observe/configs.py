"""Reads topic configs in batches: chosen keys where that is enough, all values where it is not."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from planner.kafka.connections import BlockingConnection
from planner.kafka.connections.failure import meaning
from planner.kafka.connections.session import Session
from planner.model.observed import ConfigSource, ConfigValue, TopicConfigsRequest
from runtime.kafka.codes import ErrorCode
from runtime.kafka.protocol.config_entries import (
    BROKER,
    DEFAULT,
    DYNAMIC_TOPIC,
    TOPIC,
    Decoder,
    DescribeConfigsRequest,
    Described,
    Wants,
)

_SOURCES = {DYNAMIC_TOPIC: ConfigSource.TOPIC, DEFAULT: ConfigSource.DEFAULT}
# Large enough to make round trips cheap, small enough for an answer within the timeout.
_BATCH_OF_ALL, _BATCH_OF_KEYS = 500, 2_000

Done = Callable[[int], None]


@dataclass(slots=True)
class ObservedConfigs:
    """`gone` topics vanished after they were listed; `refused` says why the others have no configs."""

    found: dict[str, Mapping[str, ConfigValue]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)


def read_configs(session: Session, wanted: Mapping[str, TopicConfigsRequest], done: Done) -> ObservedConfigs:
    """Reads the configs of all wanted topics and calls `done` with the number read so far."""
    configs, decoder, count = ObservedConfigs(), _decoder(), 0
    for keys, names in _grouped_by_request(wanted):
        size = _BATCH_OF_ALL if keys is None else _BATCH_OF_KEYS
        for start in range(0, len(names), size):
            batch = names[start : start + size]
            for one in session.ask(_describe_request(batch, keys, wanted, decoder)):
                _add_result(one, configs)
            count += len(batch)
            done(count)
    return configs


def describe_broker(connection: BlockingConnection, broker_id: int) -> Described[ConfigValue]:
    """Returns all settings of a broker. Only the broker itself returns them."""
    asked = DescribeConfigsRequest(BROKER, [str(broker_id)], None, lambda name: _every_key, _decoder())
    (one,) = connection.call(asked).resources
    return one


def _decoder() -> Decoder[ConfigValue]:
    return Decoder(_config_value)


def _config_value(text: str | None, source: int, sensitive: bool, read_only: bool) -> ConfigValue:
    return ConfigValue(text, _SOURCES.get(source, ConfigSource.BROKER), sensitive, read_only)


def _grouped_by_request(
    wanted: Mapping[str, TopicConfigsRequest],
) -> Iterator[tuple[tuple[str, ...] | None, list[str]]]:
    """Groups topics that are asked for the same keys; None as keys means all values."""
    groups: dict[tuple[str, ...] | None, list[str]] = {}
    keys_of: dict[TopicConfigsRequest, tuple[str, ...] | None] = {}
    for name in sorted(wanted):
        want = wanted[name]
        if want not in keys_of:
            keys_of[want] = None if want.explicit or want.effective else tuple(sorted(want.keys))
        groups.setdefault(keys_of[want], []).append(name)
    return ((keys, names) for keys, names in groups.items() if keys is None or keys)


def _describe_request(
    names: list[str],
    keys: tuple[str, ...] | None,
    wanted: Mapping[str, TopicConfigsRequest],
    decoder: Decoder[ConfigValue],
) -> Callable[[BlockingConnection], tuple[Described[ConfigValue], ...]]:
    request = DescribeConfigsRequest(TOPIC, names, keys, lambda name: _key_filter(wanted[name]), decoder)
    return lambda connection: connection.call(request).resources


def _key_filter(want: TopicConfigsRequest) -> Wants:
    if want.effective:
        return _every_key
    keys = want.keys
    if want.explicit:
        return lambda key, explicit: explicit or key in keys
    return lambda key, explicit: key in keys


def _every_key(key: str, explicit: bool) -> bool:
    return True


def _add_result(one: Described[ConfigValue], configs: ObservedConfigs) -> None:
    if not one.error:
        configs.found[one.name] = one.config
    elif one.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        configs.gone.add(one.name)
    elif one.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        configs.refused[one.name] = "not authorized to describe its configs"
    else:
        configs.refused[one.name] = meaning(one.error, one.message)
