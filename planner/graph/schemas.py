"""The subjects that schema registries of destinations should have, and what can't be registered there.

A flow with `schemas: {sync: true}` brings the subjects of its topics, and the versions that their schemas
refer to. With `ids: keep` its subjects are in mode IMPORT while it runs, since only that mode takes given
ids. A subject goes back to READWRITE once its flow has ended, so that producers can register there.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from planner.graph.messages import counted, flow_diagnostic
from planner.graph.replication_graph import ReplicationGraph
from planner.graph.topics import existing_mirrors
from planner.model.desired import DesiredSubject, MirroredBy
from planner.model.diagnostic import Diagnostic, error, warning
from planner.model.observed import (
    SCHEMAS,
    ObservedCluster,
    ObservedSubject,
)
from planner.model.topology import Flow
from runtime.contract.spec.schemas import SubjectNames
from runtime.schemas.client import shown
from runtime.schemas.subjects import at_destination, subjects_of_topic
from runtime.schemas.versions import SchemaVersion, with_referenced

IMPORT, READWRITE = "IMPORT", "READWRITE"
SCHEMAS_TOPIC = "_schemas"


def schema_topics(graph: ReplicationGraph, cluster: ObservedCluster) -> dict[str, SubjectNames]:
    """Returns the topics of a cluster whose subjects a plan compares, with how producers name these."""
    topics: dict[str, SubjectNames] = {}
    for edge in graph.live.edges:
        schemas = graph.flow(edge.flow).schemas
        if schemas.sync:
            topics.update(
                (node.topic, schemas.subjects)
                for node in (edge.source, edge.destination)
                if node.cluster == cluster.name
            )
    for flow in graph.topology.flows.values():
        if flow.schemas.sync and flow.destination_cluster == cluster.name:
            mirrors = _ended_mirrors(graph, flow)
            topics.update((mirror, flow.schemas.subjects) for mirror in mirrors)
    return topics


def schemas_unknown(flow: Flow, graph: ReplicationGraph) -> str:
    """Returns why the schemas of a flow's clusters could not be read; "" if nothing is missing."""
    ends = flow.ends if flow.schemas.sync else ()
    return next(filter(None, (_unread(graph, name) for name in ends)), "")


def _unread(graph: ReplicationGraph, name: str) -> str:
    cluster = graph.cluster(name)
    if cluster is None or SCHEMAS not in cluster.unreadable:
        return ""
    return f"the schema registry of {name} could not be read: {cluster.unreadable[SCHEMAS]}"


def subjects_of(graph: ReplicationGraph) -> tuple[list[DesiredSubject], list[Diagnostic]]:
    """Returns the desired subjects of all destinations, with what can't be registered with `ids: keep`."""
    desired: dict[tuple[str, str], DesiredSubject] = {}
    diagnostics: list[Diagnostic] = []
    ordered = {name: sorted(cluster.subjects) for name, cluster in graph.observed.live.items()}
    topics: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for edge in graph.live.edges:
        topics[edge.flow].append((edge.source.topic, edge.destination.topic))
    for flow in graph.flows:
        source, destination = map(graph.cluster, flow.ends)
        if not flow.schemas.sync or source is None or destination is None or schemas_unknown(flow, graph):
            continue
        made = []
        for topic, renamed in topics[flow.name]:
            for name in subjects_of_topic(ordered[source.name], topic, flow.schemas.subjects):
                there = at_destination(name, topic, renamed, flow.schemas.subjects)
                live = source.subjects[name]
                if flow.reverse_of is not None or graph.router.is_one(flow.name, topic):
                    live = replace(live, compatibility="")  # it may come from the destination
                made.append(_desired(flow, topic, name, there, live, destination))
        with_levels = flow.reverse_of is None and not any(
            graph.router.is_one(flow.name, topic) for topic, _ in topics[flow.name]
        )
        made += _referenced(flow, made, source, destination, with_levels=with_levels)
        for subject in made:
            desired.setdefault((subject.cluster, subject.name), subject)
        if flow.schemas.ids == "keep":
            diagnostics += _conflicts(flow, made, destination)
    for flow in graph.topology.flows.values():
        for subject in _released(flow, graph, ordered):
            desired.setdefault((subject.cluster, subject.name), subject)
        if not flow.runs and flow.schemas.sync and flow.schemas.ids == "keep":
            diagnostics += _not_released(flow, graph)
    return sorted(desired.values(), key=lambda subject: subject.address), diagnostics


def schema_topic_copied(graph: ReplicationGraph) -> Iterator[Diagnostic]:
    """Warns of flows that copy the registry's own topic beside schemas that are registered."""
    synced = {flow.ends for flow in graph.topology.flows.values() if flow.schemas.sync}
    for flow in graph.topology.flows.values():
        ends = flow.ends
        route = graph.router.routes[flow.name]
        copies = flow.runs and route.answer(SCHEMAS_TOPIC).taken
        if copies and ends in synced:
            yield flow_diagnostic(
                warning,
                flow,
                f"it copies {SCHEMAS_TOPIC}, and schemas.sync registers the same schemas at"
                f" {flow.destination_cluster}",
                f"exclude {SCHEMAS_TOPIC} from its topics, or set schemas: {{sync: false}}: a registry must"
                " have one writer",
                "schemas-twice",
            )


def imported_both_ways(graph: ReplicationGraph) -> Iterator[Diagnostic]:
    """Warns of two running flows that import the subjects of one topic into the registries of each other."""
    keeping = {
        (edge.source, edge.destination)
        for edge in graph.every_edge
        if (schemas := graph.flow(edge.flow).schemas).sync and schemas.ids == "keep"
    }
    both_ways = {ends for ends in keeping if ends[::-1] in keeping}
    for flow in graph.flows if both_ways else ():
        topics = {
            edge.source.topic
            for edge in graph.every_edge
            if edge.flow == flow.name and (edge.source, edge.destination) in both_ways
        }
        if topics:
            yield flow_diagnostic(
                warning,
                flow,
                f"schemas of {counted(topics)} are imported from {flow.destination_cluster} too: the subjects"
                " are in mode IMPORT at both registries, where no producer can register",
                "set schemas.ids to translate in both flows",
                "schemas-both-ways",
            )


def _ended_mirrors(graph: ReplicationGraph, flow: Flow) -> Iterator[str]:
    """Yields the mirrors that the flow copies no more: all of an ended flow, else the promoted topics."""
    for topic, mirror in existing_mirrors(graph, flow, declared=True):
        if not flow.copies(topic):
            yield mirror


def _desired(
    flow: Flow, topic: str, subject: str, name: str, live: ObservedSubject, destination: ObservedCluster
) -> DesiredSubject:
    keep = flow.schemas.ids == "keep"
    return DesiredSubject(
        cluster=destination.name,
        name=name,
        origin=MirroredBy(flow.name, flow.source_cluster, topic),
        subject=subject,
        versions=live.versions,
        keep=keep,
        compatibility=live.compatibility,
        mode=IMPORT if keep else _released_mode(destination.subjects.get(name)),
        source=flow.source,
    )


def _released_mode(live: ObservedSubject | None) -> str:
    """Returns the mode of a subject that no flow imports into any more; "" leaves it as it is."""
    return READWRITE if live is not None and live.mode == IMPORT else ""


def _referenced(
    flow: Flow,
    made: Sequence[DesiredSubject],
    source: ObservedCluster,
    destination: ObservedCluster,
    *,
    with_levels: bool,
) -> Iterator[DesiredSubject]:
    """Yields the subjects that the schemas of others refer to, with the versions that they refer to.

    `with_levels`: their compatibility follows that of the source.
    """
    numbers: dict[str, set[int]] = defaultdict(set)
    waiting = [
        reference for subject in made for version in subject.versions for reference in version.references
    ]
    while waiting:
        name, number = waiting.pop()
        live = source.subjects.get(name)
        if live is None or number in numbers[name]:
            continue
        numbers[name].add(number)
        waiting += [
            reference
            for version in live.versions
            if version.number == number
            for reference in version.references
        ]
    made_names = {subject.name for subject in made}
    for name in sorted(numbers.keys() - made_names):
        if name in source.subjects:
            live = source.subjects[name]
            versions = tuple(version for version in live.versions if version.number in numbers[name])
            wanted = ObservedSubject(versions, live.compatibility if with_levels else "")
            yield _desired(flow, "", name, name, wanted, destination)


def _conflicts(
    flow: Flow, made: Sequence[DesiredSubject], destination: ObservedCluster
) -> Iterator[Diagnostic]:
    """Yields an error for each id and each version that is another schema at the destination.

    A registry that can't import can keep none.
    """
    if not destination.imports_schemas:
        yield flow_diagnostic(
            error,
            flow,
            f"the schema registry of {destination.name} has no mode for importing: it can't keep ids",
            "set schemas.ids to translate",
            "schema-ids-not-kept",
        )
        return
    kept = KeptIds(destination)
    for subject in made:
        for version in subject.versions:
            here = f"{shown(subject.subject)} version {version.number} at {flow.source_cluster}"
            if what := kept.conflict(here, subject.name, version):
                yield flow_diagnostic(
                    error,
                    flow,
                    what,
                    "set schemas.ids to translate, or delete that schema at the destination",
                    "schema-id-conflict",
                )


class KeptIds:
    """Knows which ids and versions a registry has, to find schemas that can't be registered with theirs."""

    def __init__(self, destination: ObservedCluster) -> None:
        self._destination = destination
        self._ids: dict[int, list[tuple[str, SchemaVersion]]] = defaultdict(list)
        for name, live in destination.subjects.items():
            for version in live.versions:
                self._ids[version.id].append((name, version))

    def conflict(self, here: str, name: str, version: SchemaVersion) -> str:
        """Returns why the subject `name` can't have this version with its id; "" if it can, or has it.

        `here` says which version of the source it is.
        """
        place = self._destination.name
        for other, taken in self._ids.get(version.id, ()):
            if (taken.fingerprint, taken.references) != (version.fingerprint, version.references):
                return (
                    f"schema id {version.id} is {here}, and another schema at {place}:"
                    f" {shown(other)} version {taken.number}"
                )
        for live in self._destination.subjects.get(name, ObservedSubject()).versions:
            if live.number == version.number and live.id != version.id:
                return (
                    f"{here} has id {version.id}, and at {place} version {version.number} of"
                    f" {shown(name)} has id {live.id}"
                )
        return ""


def _not_released(flow: Flow, graph: ReplicationGraph) -> Iterator[Diagnostic]:
    """Warns of an ended flow whose subjects can't be seen: its end does not wait for the registry."""
    if why := _unread(graph, flow.destination_cluster):
        yield flow_diagnostic(
            warning,
            flow,
            f"{why}: its subjects may still be in mode IMPORT, where no producer can register",
            "apply again once the registry answers",
            "schemas-not-released",
        )


def _released(
    flow: Flow, graph: ReplicationGraph, ordered: Mapping[str, Sequence[str]]
) -> Iterator[DesiredSubject]:
    """Yields subjects in mode IMPORT of topics that the flow copies no more: producers could not register."""
    destination = graph.cluster(flow.destination_cluster)
    if destination is None or not flow.schemas.sync:
        return
    ended = [
        name
        for mirror in _ended_mirrors(graph, flow)
        for name in subjects_of_topic(ordered[destination.name], mirror, flow.schemas.subjects)
    ]
    versions = {name: subject.versions for name, subject in destination.subjects.items()}
    for name in sorted(with_referenced(ended, versions)):
        if mode := _released_mode(destination.subjects[name]):
            origin = MirroredBy(flow.name, flow.source_cluster)
            yield DesiredSubject(
                destination.name, name, origin, name, (), keep=False, mode=mode, source=flow.source
            )
