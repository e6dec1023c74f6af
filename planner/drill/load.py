"""Says which records a drill writes to each topic. The same drill writes the same records again."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from planner.drill.routes import DrillRoute
from planner.drill.values import Make, UnknownType, maker_of, random_of
from planner.model.diagnostic import Failure, error, folder_of
from planner.model.topology import Flow, Topology
from planner.workflows.samples import recorded
from runtime.contract.records.consumer_record import ConsumerRecord
from runtime.contract.records.provenance import HEADER
from runtime.contract.spec.selection import Regex

DRILL_HEADER = "repl-drill"  # tells records apart whose values do not
_KEYS = 50
_SEED = "repl drill"

Header = tuple[str, str | bytes | None]


@dataclass(frozen=True, slots=True)
class LoadRecord:
    """One record of the load. `id` is in its header, or is its value where every value is another."""

    id: bytes
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


TopicLoad = Callable[[str, int], LoadRecord]  # of a cluster and a number


def numbered(cluster: str, number: int) -> LoadRecord:
    """Returns the record of a topic without a declared format: its value has the number."""
    value = json.dumps({"drill": number, "from": cluster}).encode()
    return LoadRecord(value, f"key-{number % _KEYS}".encode(), value)


def _marked(
    cluster: str, number: int, key: bytes | None, value: bytes | None, headers: Iterable[Header] = ()
) -> LoadRecord:
    id_ = f"{cluster}-{number}".encode()
    return LoadRecord(id_, key, value, (*headers, (DRILL_HEADER, id_)))


def recorded_load(records: Sequence[ConsumerRecord]) -> TopicLoad:
    """Returns a load of the records of a sample, one after the other and again from the first."""

    def record(cluster: str, number: int) -> LoadRecord:
        sample = records[number % len(records)]
        headers = (header for header in sample.headers if header[0] not in (HEADER, DRILL_HEADER))
        return _marked(cluster, number, sample.key, sample.value, headers)

    return record


def formatted_load(flow: Flow, topic: str) -> TopicLoad | None:
    """Returns a load of the flow's formats; None where neither has a schema. Raises Failure."""
    if flow.transform is None:
        return None
    makers: dict[str, Make] = {}
    for name, form in (("key", flow.transform.key), ("value", flow.transform.value)):
        try:
            if (make := maker_of(form)) is not None:
                makers[name] = make
        except UnknownType as wrong:
            raise Failure(
                error(
                    f"flow.{flow.name}: no sample load can be made for the {name}s of {topic}: {wrong}",
                    f"record some: repl read {flow.source_cluster} {topic} --export FILE; then name the file:"
                    f" drill: {{samples: {{{topic}: FILE}}}}",
                    source=flow.source,
                )
            ) from None

    def record(cluster: str, number: int) -> LoadRecord:
        usual = numbered(cluster, number)
        key, value = usual.key, usual.value
        if "key" in makers:
            key = makers["key"](random_of(f"{_SEED} {topic} key-{number % _KEYS}"))
        if "value" in makers:
            value = makers["value"](random_of(f"{_SEED} {topic} {number}"))
        return _marked(cluster, number, key, value)

    return record if makers else None


@dataclass(frozen=True, slots=True)
class DrillLoad:
    """The load of all topics. `notes` say what it is made of, for the report.

    `by_registry` are flows whose records keep the ids of their schema registry: they come from samples.
    """

    of_topic: Mapping[tuple[str, str], TopicLoad] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    by_registry: frozenset[str] = frozenset()
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def next_record(self, cluster: str, topic: str) -> LoadRecord:
        """Returns a record that was not written before."""
        return self.record(cluster, topic, next(self.numbers))

    def record(self, cluster: str, topic: str, number: int) -> LoadRecord:
        """Returns the record of this number, which is the same in each drill."""
        return self.of_topic.get((cluster, topic), numbered)(cluster, number)


def load_of(topology: Topology, routes: Sequence[DrillRoute]) -> DrillLoad:
    """Returns the load of the topics that flows copy: of a sample first, else of the flow's format.

    Failure: a sample can't be read, or a schema has a type that no values are made of.
    """
    samples, notes = _samples_of(topology, sorted({route.topic for route in routes}))
    loads: dict[tuple[str, str], TopicLoad] = {}
    by_registry: set[str] = set()
    for name in sorted({route.flow for route in routes}):
        flow = topology.flows[name]
        transform = flow.transform
        has_registry = transform is not None and bool(transform.key.registry or transform.value.registry)
        topics = {route.topic for route in routes if route.flow == name}
        if has_registry and topics & samples.keys():
            by_registry.add(name)
            if missing := sorted(topics - samples.keys()):
                what = f"{', '.join(missing)} has no sample, and the flow's other topics have one"
                hint = "record a sample of each topic, or of none: with one, the flow asks its registry"
                raise Failure(error(f"flow.{name}: {what}", hint, source=flow.source))
        made: set[str] = set()
        for route in [route for route in routes if route.flow == name]:
            load = samples.get(route.topic) or formatted_load(flow, route.topic)
            for place in ((route.source, route.topic), (route.destination, route.mirror)):
                if load is not None and place not in loads:
                    loads[place] = load
                    made |= {route.topic} - samples.keys()
        if made:
            without_id = "; the lab has no schema registry, so they have no schema id" if has_registry else ""
            notes.append(
                f"{', '.join(sorted(made))}: records are made from the schema of flow.{name}{without_id}"
            )
    return DrillLoad(loads, tuple(notes), frozenset(by_registry))


def _samples_of(topology: Topology, topics: Sequence[str]) -> tuple[dict[str, TopicLoad], list[str]]:
    """Returns the loads of topics with a recorded sample, and what each sample is used for."""
    declared = sorted(topology.drill.samples, key=lambda sample: sample.topics)
    used: dict[str, list[str]] = {sample.topics: [] for sample in declared}
    for topic in topics:
        matching = [sample for sample in declared if Regex(sample.topics).matches(topic)]
        if matching:  # a name goes before a regex
            used[min(matching, key=lambda sample: sample.topics != topic).topics].append(topic)
    loads: dict[str, TopicLoad] = {}
    notes = []
    for sample in declared:
        if not used[sample.topics]:
            notes.append(f"drill.samples: no running flow copies a topic that {sample.topics} stands for")
            continue
        folder = Path(folder_of(sample.source))
        records = recorded(folder / sample.file)
        loads |= dict.fromkeys(used[sample.topics], recorded_load(records))
        notes.append(
            f"{', '.join(used[sample.topics])}: {len(records):,} recorded records of {sample.file}"
            " are written, with the present time"
        )
    return loads, notes
