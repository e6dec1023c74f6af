"""Values of Kafka's settings and of fields: how the broker parses them, and how people read them.

Renderers and notes show values by `fields.displayed`: `50MB/s`, `earliest`, `not set`. Nothing is compared by
these texts.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from planner.model.setting_types import BOOLEANS, LISTS, NUMBERS
from runtime.contract.spec.launch import METRICS_PORT
from runtime.contract.spec.units import BINARY, DECIMAL, DURATIONS, duration, in_whole

Normal = str | Decimal | bool | tuple[str, ...] | None
_BLANKS = "".join(map(chr, range(ord(" ") + 1)))


@lru_cache(maxsize=65_536)
def normal(key: str, value: str | None) -> Normal:
    """Returns the value as the broker parses it, so that equal results need no change.

    A setting that is not Kafka's own, such as a vendor's, is compared letter by letter.
    """
    if value is None:
        return None
    text = trimmed(value)
    if key in LISTS:
        return tuple(sorted({part.strip() for part in text.split(",") if part.strip()}))
    if key in BOOLEANS:
        return text.lower() == "true" if text.lower() in ("true", "false") else text
    if key in NUMBERS:
        try:
            return Decimal(text)
        except InvalidOperation:
            return text
    return value


def as_brokers_read(config: Mapping[str, str | None]) -> dict[str, object]:
    """Returns settings as brokers read them: numbers, flags and lists. Another text stays as it is.

    A number of more than 64 bits stays a text, too, which no broker takes.
    """
    return {key: _as_data(value, normal(key, value)) for key, value in config.items()}


def _as_data(text: str | None, value: Normal) -> object:
    match value:
        case Decimal() if not value.is_finite() or not -(1 << 63) <= value < 1 << 63:
            return text
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case tuple():
            return list(value)
        case _:
            return value


def trimmed(value: str) -> str:
    """Returns the value without what the broker takes off its ends: all controls, too."""
    return value.strip(_BLANKS)


def same_value(key: str, one: str | None, other: str | None) -> bool:
    """Returns whether two values of a setting mean the same to the broker."""
    return normal(key, one) == normal(key, other)


FOREVER = str(2**63 - 1)


def readable(key: str, value: str) -> str:
    """Returns the value with its unit, or `no limit` for the largest number."""
    return "no limit" if value == FOREVER else in_units(key, value)


def in_units(key: str, value: str) -> str:
    """Returns `7d` for 604800000 milliseconds. A value without a whole unit stays as it is."""
    units = DURATIONS if key.endswith(".ms") else (*BINARY, *DECIMAL) if key.endswith(".bytes") else ()
    return (in_whole(int(value), *units) if value.isdecimal() else "") or value


Parts = Mapping[str, Any]  # a value that has several parts, or names with a value each

NAMES_SHOWN = 20  # topics of a failback that are shown by name
_PARTITIONS_SHOWN = 5
_OFFSETS_SHOWN = 20  # partitions of a start


def rate(bytes_per_second: int) -> str:
    """Shows bytes per second as `50MB/s` or `1MiB/s`, and as `1500 B/s` where no larger unit fits.

    64000000 is 64MB/s, though it is a whole number of KiB.
    """
    return f"{in_whole(bytes_per_second, *DECIMAL, *BINARY) or f'{bytes_per_second} B'}/s"


def replication(factors: Sequence[int]) -> str:
    """Shows the replication of each partition, as in `3, and 2 for 2 partitions (4, 7)`."""
    partitions: dict[int, list[int]] = {}
    for number, factor in enumerate(factors):
        partitions.setdefault(factor, []).append(number)
    most, *others = sorted(partitions, key=lambda factor: (-len(partitions[factor]), -factor))
    texts = [str(most)]
    for factor in sorted(others):
        numbers = partitions[factor]
        more = " …" if len(numbers) > _PARTITIONS_SHOWN else ""
        listed = ", ".join(map(str, numbers[:_PARTITIONS_SHOWN])) + more
        alone = len(numbers) == 1
        texts.append(
            f"{factor} for " + (f"partition {listed}" if alone else f"{len(numbers)} partitions ({listed})")
        )
    return ", and ".join(texts)


def _reference(value: Parts) -> str:
    return "".join(f"{{{kind}: {name}}}" for kind, name in value.items())


def _rename(value: Parts) -> str:
    if "match" in value:
        return f"{value['match']} -> {value['to']}"
    return ", ".join(f"{name} -> {to}" for name, to in sorted(value["table"].items()))


def _start(value: Parts) -> str:
    if "timestamp" in value:
        return f"timestamp {value['timestamp']}"
    places = [
        f"{topic}:{partition}:{offset}"
        for topic, offsets in sorted(value["offsets"].items())
        for partition, offset in sorted(offsets.items(), key=lambda entry: int(entry[0]))
    ]
    more = len(places) - _OFFSETS_SHOWN
    return ", ".join(places[:_OFFSETS_SHOWN]) + (f" and {more:,} more partitions" if more > 0 else "")


_SCHEMA = 300  # characters of a format with its schema: Avro's are long


def _transform(value: Parts) -> tuple[str, ...]:
    """`sets value.email: sha2(value.email, 256)`, `drops value.card`, `filters by: value.country <> 'DE'`"""
    texts = [f"sets {path}: {expression}" for path, expression in sorted(value.get("set", {}).items())]
    if "drop" in value:
        texts.append(f"drops {', '.join(value['drop'])}")
    if (where := value.get("where")) is not None:
        texts.append(f"filters by: {where}")
    if "on_filtered" in value:
        texts.append("copies filtered records as tombstones, with their keys")
    texts += (f"reads the {name} as {_format(value[name])}" for name in ("value", "key") if name in value)
    if "on_bad_record" in value:
        texts.append("quarantines bad records as they came")
    return tuple(texts)


def _format(text: str) -> str:
    """`json: id BIGINT`, `protobuf: shop.Customer (descriptors 1f0c3a52b9de)`"""
    form = " ".join(text.split())
    if form.startswith("protobuf"):
        form, _, descriptors = form.rpartition(" ")
        return f"{form} (descriptors {hashlib.sha256(descriptors.encode()).hexdigest()[:12]})"
    return f"{form[:_SCHEMA]}{'…' if len(form) > _SCHEMA else ''}"


def _groups(value: Parts) -> str:
    """`.* without x, synced every 5s, exact`"""
    if not value["sync"]:
        return "not synced"
    without = f" without {', '.join(value['exclude'])}" if value["exclude"] else ""
    return f"{', '.join(value['include'])}{without}, synced every {duration(value['every'])}, {value['mode']}"


def _topic_names(value: Parts) -> tuple[str, ...]:
    named = [f"{source} -> {destination}" for source, destination in value.items()]
    further = len(named) - NAMES_SHOWN
    return (*named[:NAMES_SHOWN], f"{further:,} more") if further > 0 else tuple(named)


def _files(value: Parts) -> str:
    """`raw in /data/lake/{topic}/, closed at 128MiB, every 1m, snapshots every 10m, files below 16MiB merged
    every 1h, replaced ones stay for 1d`; of an object store also `endpoint https://…, access.key {env: KEY}`
    """
    folder = f"{value['folder']}/{value['layout']}"
    every = duration(value["every"])
    shown = f"{value['format']} in {folder}, closed at {_size(value['size'])}, every {every}"
    if value.get("snapshots") is not None:
        shown = f"{shown}, snapshots every {duration(value['snapshots'])}"
    if "compact" in value:
        merges = value["compact"]
        shown += (
            f", files below {_size(merges['below'])} merged every {duration(merges['every'])}"
            f", replaced ones stay for {duration(merges['retention'])}"
        )
    return shown + _client(value)


def _client(value: Parts) -> str:
    return "".join(
        f", {key} {_reference(setting) if isinstance(setting, Mapping) else setting}"
        for key, setting in value.get("client", {}).items()
    )


def _lines(value: Parts) -> str:
    """`lines of text in /data/inbox and its sub-folders into inbox, looked at every 1s`; of an object store
    also how it is reached, as for files
    """
    below = " and its sub-folders" if value.get("recursive") else ""
    read = "rows of Parquet" if value["format"] == "parquet" else f"lines of {value['format']}"
    every = duration(value["every"])
    return (
        f"{read} in {value['folder']}{below} into {value['topic']}, looked at every {every}{_client(value)}"
    )


def _size(size: int) -> str:
    return in_whole(size, *BINARY) or f"{size}B"


class FieldType(Struct, frozen=True, eq=False):
    """The type of a field's values. None is allowed in every type: the field is not set.

    A value of the class `of` is shown by `show`, and any other, such as text, as it is.
    """

    of: type = object
    show: Callable[[Any], object] = lambda value: value

    def shown(self, value: object) -> object:
        """Returns the value as it is shown: text, a list of texts, a number or a flag."""
        return self.show(value) if isinstance(value, self.of) else value


PLAIN = FieldType()  # a word, a number or a flag
DURATION = FieldType(int, duration)  # milliseconds
RATE = FieldType(int, rate)  # bytes per second
PATTERNS = FieldType()  # a list without an order
SETTING = FieldType()  # the text of a Kafka topic setting, which the broker parses
REPLICATION = FieldType(tuple, replication)  # one number, or the number of each partition
# Settings of Spark or of the launcher.
SETTINGS = FieldType(
    Mapping, lambda value: tuple(f"{key}={setting}" for key, setting in sorted(value.items()))
)
REFERENCE = FieldType(Mapping, _reference)  # a client setting: text, {"env": VAR} or {"file": path}
RENAME = FieldType(Mapping, _rename)  # template text, {"match": regex, "to": text} or {"table": names}
START = FieldType(Mapping, _start)  # a word, {"timestamp": ms} or {"offsets": by topic and partition}
ORIGIN_COMMITS = FieldType(Mapping, lambda value: f"{value['group']} every {duration(value['every'])}")
# {"folder": path, "format": word, "layout": text, "size": bytes, "every": ms, "snapshots": ms,
# "compact": {"every": ms, "below": bytes, "retention": ms}}; the last two are left out where not set, as is
# "client": settings of an object store, with references
FILES = FieldType(Mapping, _files)
LINES = FieldType(Mapping, _lines)
TRANSFORM = FieldType(Mapping, _transform)  # {"value": format, "where": text, "set": by field, …}
GROUPS = FieldType(Mapping, _groups)  # what a new flow does with consumer groups
TOPIC_NAMES = FieldType(Mapping, _topic_names)  # source topics to destination topics
# Port 0 is chosen by the job.
ENDPOINT = FieldType(
    Mapping, lambda value: f"{value['host']}:{value['port'] or f'{METRICS_PORT} or the next free port'}"
)
FLOW_STATES = FieldType(Mapping, lambda value: tuple(f"{flow} ({state})" for flow, state in value.items()))
SETTING_NAMES = FieldType(
    Mapping, lambda value: tuple(f"{topic}: {', '.join(keys)}" for topic, keys in value.items())
)
# The copy settings that are not the defaults.
COPY = FieldType(Mapping, lambda value: msgspec.json.encode(value).decode() if value else "as released")
