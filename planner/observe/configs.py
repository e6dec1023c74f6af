"""Topic configs in batches: declared keys alone where that is enough, everything where it is not."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kafka.protocol.admin import DescribeConfigsRequest

from planner.model.observed import ConfigsWanted, ConfigValue
from planner.observe.asking import NONE, TOPIC_REFUSED, UNKNOWN_TOPIC, meaning, version_of
from planner.observe.session import Session
from planner.observe.wire import Connection
from planner.observe.wire.config_entries import Decoder, Described, Wants

TOPIC, BROKER = 2, 4
_OLDEST, _NEWEST = 1, 4
# Large enough that the round trip does not count, small enough for an answer within the silence we bear.
_BATCH_OF_ALL, _BATCH_OF_KEYS = 500, 2_000

Done = Callable[[int], None]


@dataclass(slots=True)
class Configs:
    """`gone` vanished since they were listed; `refused` says of the others why there is nothing."""

    found: dict[str, Mapping[str, ConfigValue]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)


def read_configs(session: Session, wanted: Mapping[str, ConfigsWanted], done: Done) -> Configs:
    configs, decoder, count = Configs(), Decoder(), 0
    for keys, names in _alike(wanted):
        size = _BATCH_OF_ALL if keys is None else _BATCH_OF_KEYS
        for start in range(0, len(names), size):
            batch = names[start : start + size]
            for one in session.ask(_question(batch, keys, wanted, decoder)):
                _take(one, configs)
            count += len(batch)
            done(count)
    return configs


def describe_broker(connection: Connection, broker_id: int) -> Described:
    """Everything a broker says of its own settings; only the broker itself can be asked."""
    (one,) = _ask(connection, BROKER, [str(broker_id)], None, Decoder(), lambda name: _everything)
    return one


def _alike(wanted: Mapping[str, ConfigsWanted]) -> Iterator[tuple[tuple[str, ...] | None, list[str]]]:
    """Topics of which the same is asked for: these keys, or (None) all of them."""
    groups: dict[tuple[str, ...] | None, list[str]] = {}
    keys_of: dict[ConfigsWanted, tuple[str, ...] | None] = {}
    for name in sorted(wanted):
        want = wanted[name]
        if want not in keys_of:
            keys_of[want] = None if want.explicit or want.effective else tuple(sorted(want.keys))
        groups.setdefault(keys_of[want], []).append(name)
    return ((keys, names) for keys, names in groups.items() if keys is None or keys)


def _question(
    names: list[str],
    keys: tuple[str, ...] | None,
    wanted: Mapping[str, ConfigsWanted],
    decoder: Decoder,
) -> Callable[[Connection], list[Described]]:
    return lambda connection: _ask(
        connection, TOPIC, names, keys, decoder, lambda name: _filter(wanted[name])
    )


def _ask(
    connection: Connection,
    kind: int,
    names: Iterable[str],
    keys: tuple[str, ...] | None,
    decoder: Decoder,
    wants: Callable[[str], Wants],
) -> list[Described]:
    version = version_of(connection, DescribeConfigsRequest, _NEWEST, _OLDEST)
    asked = None if keys is None else list(keys)
    resource = DescribeConfigsRequest.DescribeConfigsResource
    request = DescribeConfigsRequest(
        resources=[
            resource(resource_type=kind, resource_name=name, configuration_keys=asked) for name in names
        ],
        include_synonyms=False,
        **({"include_documentation": False} if version >= 3 else {}),
    )
    answer = connection.call_raw(request, version)
    return connection.read(lambda: decoder.decode(answer, version, wants), "DescribeConfigs")


def _filter(want: ConfigsWanted) -> Wants:
    if want.effective:
        return _everything
    keys = want.keys
    if want.explicit:
        return lambda key, explicit: explicit or key in keys
    return lambda key, explicit: key in keys


def _everything(key: str, explicit: bool) -> bool:
    return True


def _take(one: Described, configs: Configs) -> None:
    if one.error == NONE:
        configs.found[one.name] = one.config
    elif one.error == UNKNOWN_TOPIC:
        configs.gone.add(one.name)
    elif one.error == TOPIC_REFUSED:
        configs.refused[one.name] = "not authorized to describe its configs"
    else:
        configs.refused[one.name] = meaning(one.error, one.message)
