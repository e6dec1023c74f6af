"""Says which records a drill writes to each topic. The same drill writes the same records again."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from planner.drill.load.ddl import UnknownType
from planner.drill.load.messages import protobuf_maker
from planner.drill.load.values import avro_maker, json_maker, random_of
from planner.model.diagnostic import Failure, error
from planner.model.topology import DrillSample, Flow, Topology
from planner.workflows.samples import recorded
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.records.provenance import HEADER
from runtime.contract.spec.selection import Regex
from runtime.contract.spec.transform import FormatSpec

DRILL_HEADER = "repl-drill"  # tells records apart whose values do not
_KEYS = 50
_SEED = "repl drill"

Header = tuple[str, str | bytes | None]
Make = Callable[[Random], bytes]


@dataclass(frozen=True, slots=True)
class LoadRecord:
    """One record of the load. `id` is in its header, or is its value where every value is another."""

    id: bytes
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def numbered(cluster: str, number: int) -> LoadRecord:
    """Returns the record of a topic without a declared format: its value has the number."""
    value = json.dumps({"drill": number, "from": cluster}).encode()
    return LoadRecord(value, f"key-{number % _KEYS}".encode(), value)


@dataclass(frozen=True, slots=True)
class FormattedLoad:
    """Makes the records of a topic whose key or value has a declared format. None: as without one."""

    topic: str
    key: Make | None
    value: Make | None

    def record(self, cluster: str, number: int) -> LoadRecord:
        usual = numbered(cluster, number)
        key = usual.key if self.key is None else self.key(self._random(f"key-{number % _KEYS}"))
        value = usual.value if self.value is None else self.value(self._random(str(number)))
        return _marked(cluster, number, key, value, ())

    def _random(self, of: str) -> Random:
        return random_of(f"{_SEED} {self.topic} {of}")


@dataclass(frozen=True, slots=True)
class RecordedLoad:
    """Writes the records of a sample one after the other, again and again. Their times do not count."""

    records: Sequence[ConsumerRecord]

    def record(self, cluster: str, number: int) -> LoadRecord:
        one = self.records[number % len(self.records)]
        headers = tuple(each for each in one.headers if each[0] not in (HEADER, DRILL_HEADER))
        return _marked(cluster, number, one.key, one.value, headers)


def _marked(
    cluster: str, number: int, key: bytes | None, value: bytes | None, headers: tuple[Header, ...]
) -> LoadRecord:
    id_ = f"{cluster}-{number}".encode()
    return LoadRecord(id_, key, value, (*headers, (DRILL_HEADER, id_)))


TopicLoad = FormattedLoad | RecordedLoad


@dataclass(frozen=True, slots=True)
class DrillLoad:
    """The load of all topics. `notes` say what it is made of, for the report.

    `by_registry` are flows whose records keep the ids of their schema registry: they come from samples.
    """

    of_topic: Mapping[tuple[str, str], TopicLoad]
    notes: tuple[str, ...] = ()
    by_registry: frozenset[str] = frozenset()

    def record(self, cluster: str, topic: str, number: int) -> LoadRecord:
        """Returns the record of this number; numbers of one drill are all different."""
        load = self.of_topic.get((cluster, topic))
        return numbered(cluster, number) if load is None else load.record(cluster, number)


@dataclass(frozen=True, slots=True)
class LoadedTopic:
    """A topic that a flow copies, with its place and its mirror's."""

    flow: str
    topic: str
    places: tuple[tuple[str, str], ...]


def load_of(topology: Topology, topics: Iterable[LoadedTopic]) -> DrillLoad:
    """Returns the load of the topics that flows copy: of a sample first, else of the flow's format.

    Failure: a sample can't be read, or a schema has a type that no values are made of.
    """
    listed = list(topics)
    samples = Samples(topology.drill.samples)
    found: dict[tuple[str, str], TopicLoad] = {}
    by_registry: set[str] = set()
    for name in sorted({one.flow for one in listed}):
        flow = topology.flows[name]
        mine = [one for one in listed if one.flow == name]
        taken = {one.topic: sample for one in mine if (sample := samples.of(one.topic)) is not None}
        if _has_registry(flow) and taken:
            _require_all(flow, [one.topic for one in mine], taken)
            by_registry.add(name)
        for one in mine:
            load = RecordedLoad(taken[one.topic]) if one.topic in taken else formatted(flow, one.topic)
            if load is not None:
                found |= {place: load for place in one.places if place not in found}
    notes = [*samples.notes([one.topic for one in listed]), *_format_notes(topology, listed, found)]
    return DrillLoad(found, tuple(notes), frozenset(by_registry))


class Samples:
    """The recorded samples of a topology. Each file is read once, when a topic needs it."""

    def __init__(self, declared: Iterable[DrillSample]) -> None:
        self._declared = sorted(declared, key=lambda one: one.topics)
        self._read: dict[str, Sequence[ConsumerRecord]] = {}

    def of(self, topic: str) -> Sequence[ConsumerRecord] | None:
        """Returns the records for a topic: those that its name stands for, else those of the first regex."""
        found = self._match(topic)
        if found is None:
            return None
        if found.topics not in self._read:
            folder = Path(found.source.file).parent if found.source is not None else Path()
            self._read[found.topics] = recorded(folder / found.file)
        return self._read[found.topics]

    def notes(self, topics: Iterable[str]) -> list[str]:
        """Returns what each sample is used for."""
        used: dict[str, list[str]] = {one.topics: [] for one in self._declared}
        for topic in sorted(set(topics)):
            if (found := self._match(topic)) is not None:
                used[found.topics].append(topic)
        return [
            f"{', '.join(used[one.topics])}: {len(self._read[one.topics]):,} recorded records of {one.file}"
            " are written, with the present time"
            if used[one.topics]
            else f"drill.samples: no running flow copies a topic that {one.topics} stands for"
            for one in self._declared
        ]

    def _match(self, topic: str) -> DrillSample | None:
        matching = [one for one in self._declared if Regex(one.topics).matches(topic)]
        return next((one for one in matching if one.topics == topic), next(iter(matching), None))


def formatted(flow: Flow, topic: str) -> FormattedLoad | None:
    """Returns the load of the flow's formats; None where neither has a schema. Raises Failure."""
    if flow.transform is None:
        return None
    made = {}
    for name, form in (("key", flow.transform.key), ("value", flow.transform.value)):
        try:
            made[name] = _maker(form)
        except UnknownType as wrong:
            raise Failure(
                error(
                    f"flow.{flow.name}: no sample load can be made for the {name}s of {topic}: {wrong}",
                    f"record some: repl read {flow.source_cluster} {topic} --export FILE; then name the file:"
                    f" drill: {{samples: {{{topic}: FILE}}}}",
                    source=flow.source,
                )
            ) from None
    return FormattedLoad(topic, **made) if any(made.values()) else None


def _maker(form: FormatSpec) -> Make | None:
    match form.format:
        case "json":
            return json_maker(form.schema or "")
        case "avro":
            return avro_maker(form.schema or "")
        case "protobuf":
            return protobuf_maker(form.schema or "")
        case _:
            return None


def _has_registry(flow: Flow) -> bool:
    transform = flow.transform
    return transform is not None and bool(transform.key.registry or transform.value.registry)


def _require_all(flow: Flow, topics: Iterable[str], taken: Iterable[str]) -> None:
    """Failure where samples have the schema ids of a registry, and other topics of the flow have none."""
    if missing := sorted(set(topics) - set(taken)):
        raise Failure(
            error(
                f"flow.{flow.name}: {', '.join(missing)} has no sample, and the flow's other topics have one",
                "record a sample of each topic, or of none: with a sample, the flow asks its schema registry",
                source=flow.source,
            )
        )


def _format_notes(
    topology: Topology, topics: Iterable[LoadedTopic], found: Mapping[tuple[str, str], TopicLoad]
) -> list[str]:
    by_format: dict[str, set[str]] = {}
    for one in topics:
        if isinstance(found.get(one.places[0]), FormattedLoad):
            by_format.setdefault(one.flow, set()).add(one.topic)
    notes = []
    for name, made in sorted(by_format.items()):
        said = f"{', '.join(sorted(made))}: records are made from the schema of flow.{name}"
        if _has_registry(topology.flows[name]):
            said += "; the lab has no schema registry, so they have no schema id"
        notes.append(said)
    return notes
