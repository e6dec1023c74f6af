"""The topics that the clusters should hold, with their settings: declared topics, and mirrors of flows.

A mirror's settings are mirrored from the source, given back, or lifted for a failback. A failback mirrors no
settings: the topics that it copies into keep their own. Only a limit that would refuse a record, or change
its timestamp, is lifted. The registry remembers the value before, and it is restored when the failback has
ended.
"""

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from planner.graph.replication_graph import CopyEdge, ReplicationGraph, TopicNode, strongly_connected
from planner.model.address import Kind, topic_address
from planner.model.desired import Declared, DesiredTopic, MirroredBy, QuarantineOf
from planner.model.observed import (
    DECLARED,
    ConfigSource,
    ObservedTopic,
    RegistryEntry,
)
from planner.model.topology import Flow, Topic
from runtime.contract.spec.acls import flow_origin
from runtime.contract.spec.jobspec import ProvenanceMode
from runtime.contract.spec.topic_settings import BOUNDS, MirrorRule, TopicSettings, supported
from runtime.contract.spec.transform import quarantine_settings, quarantine_topic


def settings_of(live: ObservedTopic | None, defaults: Mapping[str, str]) -> TopicSettings:
    """Returns the settings as they are now. What the topic does not set, it inherits from its cluster."""
    explicit: dict[str, str] = {}
    others: dict[str, str] = {}
    for key, setting in live.config.items() if live is not None else ():
        if setting.value is None:
            continue
        if setting.source is ConfigSource.TOPIC:
            explicit[key] = setting.value
        elif defaults.get(key) != setting.value:
            others[key] = setting.value
    return TopicSettings(explicit, {**defaults, **others} if others else defaults)


LARGEST = "max.message.bytes"


def limits_to_lift(
    now: TopicSettings,
    bounds: Mapping[str, str],
    largest: int | None,
    before: Mapping[str, str],
    declared: Collection[str],
) -> dict[str, str]:
    """Returns the limits to lift, with their new values.

    `bounds` are those of timestamps that the cluster has. `largest` is the largest record batch that the
    failback may bring. `before` are the values of limits that are lifted already. A declared limit stays as
    it is declared.
    """
    wanted = {key: value for key, value in bounds.items() if key in before or now.effective(key) != value}
    limit = before.get(LARGEST) or (now.inherited if LARGEST in before else now.explicit).get(LARGEST)
    limit = limit or now.inherited.get(LARGEST)
    if largest is not None and limit is not None and limit.isdecimal() and largest > int(limit):
        wanted[LARGEST] = str(largest)
    return {key: value for key, value in wanted.items() if key not in declared}


def values_to_restore(now: TopicSettings, keys: Collection[str], before: Mapping[str, str]) -> dict[str, str]:
    """Returns the value to restore for each lifted limit: "" if the topic had no value of its own."""
    return {key: before.get(key, now.explicit.get(key, "")) for key in keys}


def own_values(before: Mapping[str, str]) -> dict[str, str]:
    """Returns the values that were set on the topic itself. The other limits go back to the
    cluster's value.
    """
    return {key: value for key, value in before.items() if value}


def topics_of(graph: ReplicationGraph, provenance: Mapping[str, ProvenanceMode]) -> "DesiredTopics":
    """Returns the desired topics of all clusters."""
    made = DesiredTopics(graph, provenance)
    for component in strongly_connected(graph.carried):
        made.build(component)
    for node in sorted(graph.declared_topics.keys() - made.settings.keys()):
        made.build([node])
    quarantines = _quarantines(graph, made)
    kept = kept_topics(graph, made.topics)
    made.topics |= {**quarantines, **kept}
    return made


class DesiredTopics:
    """Builds topics from sources to destinations, so that a chain of flows is one plan.

    `settings`: of every topic after the plan. `mirrored`: what a flow asks of each mirror.
    """

    def __init__(self, graph: ReplicationGraph, provenance: Mapping[str, ProvenanceMode]) -> None:
        self.graph = graph
        self.rules = {
            flow.name: MirrorRule(
                flow.configs.sync, flow.configs.exclude, headers=provenance[flow.name] == "headers"
            )
            for flow in graph.flows
        }
        self.into = graph.live.incoming
        self.partitions = partitions_of(graph)
        self.settings: dict[TopicNode, TopicSettings] = {}
        self.mirrored: dict[TopicNode, Mapping[str, str]] = {}
        self.topics: dict[TopicNode, DesiredTopic] = {}

    @functools.cached_property
    def desired(self) -> tuple[DesiredTopic, ...]:
        """Returns the topics in order, once all are built."""
        return tuple(self.topics[node] for node in sorted(self.topics))

    def build(self, component: list[TopicNode]) -> None:
        """Builds the topics of one component. In a loop, topics that exist come first, then their mirrors."""
        live = [node for node in component if node in self.graph.live.nodes]
        ready = [node for node in live if len(component) == 1 or self._exists_or_declared(node)]
        for node in ready:
            outside = [edge for edge in self._copies_into(node) if edge.source not in component]
            self._build_topic(node, outside[0] if outside else None)
        rest = [node for node in live if node not in ready]
        while rest:
            node, edge = next(
                (node, edge) for node in rest for edge in self.into[node] if edge.source in self.settings
            )
            self._build_topic(node, edge)
            rest.remove(node)

    def defaults(self, cluster: str) -> Mapping[str, str]:
        """Returns what topics of a cluster inherit; nothing where it could not be read."""
        observed = self.graph.cluster(cluster)
        return observed.defaults if observed is not None else {}

    def _exists_or_declared(self, node: TopicNode) -> bool:
        return self.graph.exists(node) or node in self.graph.declared_topics

    def _copies(self, node: TopicNode) -> Sequence[CopyEdge]:
        """Returns the copies that make the topic a mirror.

        A failback makes no mirror of a topic that exists already.
        """
        edges = self.into.get(node, ())
        if not self._exists_or_declared(node):
            return edges
        return [edge for edge in edges if self.graph.flow(edge.flow).reverse_of is None]

    def _copies_into(self, node: TopicNode) -> list[CopyEdge]:
        """Returns the copies whose settings a topic may follow, also those out of silent clusters."""
        copies = self._copies(node) or self.into.get(node, ())
        return sorted([*copies, *self.graph.silent.incoming.get(node, ())])

    def _build_topic(self, node: TopicNode, parent: CopyEdge | None) -> None:
        """Builds one topic. `parent` is the copy whose source the settings follow; in a loop
        there is none.
        """
        cluster, defaults = self.graph.cluster(node.cluster), self.defaults(node.cluster)
        now = settings_of(cluster.topics.get(node.topic) if cluster is not None else None, defaults)
        copies = self._copies(node)
        failback_edges = [edge for edge in self.into.get(node, ()) if edge not in copies]
        given, unset = self._mirrored(node, parent, now) if copies else ({}, frozenset[str]())
        given = supported(given, defaults)
        lifting = self._limits_to_lift(node, failback_edges, now) if failback_edges and not copies else {}
        before = self._saved_values(node)
        topic = self.graph.declared_topics.get(node)
        if topic is not None and not failback_edges and (not copies or self._is_unread(parent)):
            given = {**self._settings_left_by_flow(node), **given}
        declared = topic.config if topic is not None else {}
        config = {**given, **lifting, **declared}
        restored = (
            {} if failback_edges else {key: value for key, value in before.items() if key not in config}
        )
        if topic is not None:
            entry = self._entry(node)
            applied = frozenset(entry.config) if entry is not None else frozenset[str]()
            unset = applied - config.keys()  # removed by this plan
        unset |= frozenset(restored)
        if topic is not None or copies or failback_edges:
            made = (
                self._declared(node, topic, config, frozenset(given) - declared.keys())
                if topic is not None
                else self._mirror(node, parent or self._copies_into(node)[0], config, unset)
            )
            self.topics[node] = replace(
                made,
                lifted_by=failback_edges[0].flow if lifting else "",
                before=values_to_restore(now, lifting, before),
                restored=own_values(restored),
            )
        left = {key: value for key, value in now.explicit.items() if key not in unset}
        self.settings[node] = TopicSettings({**left, **own_values(restored), **config}, now.inherited)

    def _mirrored(
        self, node: TopicNode, parent: CopyEdge | None, now: TopicSettings
    ) -> tuple[dict[str, str], frozenset[str]]:
        """Returns the settings that flows give a mirror, and those that they take back."""
        if parent is None or self._is_unread(parent):
            return dict(BOUNDS), frozenset()
        rule = self.rules[parent.flow]
        config = rule.wanted(self.settings[parent.source])
        self.mirrored[node] = {key: value for key, value in config.items() if key not in BOUNDS}
        return config, rule.stale(now.explicit, config)

    def _is_unread(self, parent: CopyEdge | None) -> bool:
        """Returns whether the settings of the copy's source could not be read."""
        return parent is not None and (
            parent.flow not in self.rules
            or parent.source not in self.settings  # only a silent cluster would fill it
            or self.graph.is_undescribable(parent.source)
        )

    def _limits_to_lift(
        self, node: TopicNode, failback_edges: list[CopyEdge], now: TopicSettings
    ) -> dict[str, str]:
        limits = [
            self.rules[edge.flow].wanted(self.settings[edge.source]).get(LARGEST, "")
            for edge in failback_edges
            if edge.source in self.settings
        ]
        declared = self.graph.declared_topics.get(node)
        return limits_to_lift(
            now,
            supported(BOUNDS, self.defaults(node.cluster)),
            max((int(limit) for limit in limits if limit.isdecimal()), default=None),
            self._saved_values(node),
            declared.config.keys() if declared is not None else (),
        )

    def _saved_values(self, node: TopicNode) -> Mapping[str, str]:
        entry = self._entry(node)
        return entry.before if entry is not None else {}

    def _entry(self, node: TopicNode) -> RegistryEntry | None:
        entry = self.graph.observed.owned.get(topic_address(*node))
        return entry if entry is not None and entry.topology == self.graph.topology.name else None

    def _settings_left_by_flow(self, node: TopicNode) -> Mapping[str, str]:
        """Returns the settings that a flow gave to a declared topic and that stay while none is mirrored.

        Its flow has ended, its source does not answer or may not be described, or the source topic is gone. A
        flow that leaves the topology leaves none of them.
        """
        entry = self._entry(node)
        if entry is None or not self._may_be_filled(node):
            return {}
        return {key: entry.config[key] for key in entry.mirrored}

    def _partitions_left_by_flow(self, node: TopicNode) -> int | None:
        """Returns the number of partitions that a declared topic keeps while no flow is seen to fill it."""
        entry = self._entry(node)
        if entry is not None and self._may_be_filled(node):
            return entry.number("partitions")
        return self.partitions.get(node) if node in self.graph.silent.incoming else None

    def _may_be_filled(self, node: TopicNode) -> bool:
        """Returns whether a flow takes a topic that has this name at its destination."""
        return next(self.graph.router.direct_origins(*node), None) is not None

    def _declared(
        self, node: TopicNode, topic: Topic, config: Mapping[str, str], mirrored: frozenset[str]
    ) -> DesiredTopic:
        partitions = self.partitions[node] if node in self.into else self._partitions_left_by_flow(node)
        return DesiredTopic(
            cluster=topic.cluster,
            name=topic.name,
            origin=Declared(),
            partitions=topic.partitions if topic.partitions is not None else partitions,
            replication=topic.replication,
            config=dict(sorted(config.items())),
            mirrored=mirrored,
            protect=topic.protect,
            on_remove=topic.on_remove,
            source=topic.source,
        )

    def _mirror(
        self, node: TopicNode, edge: CopyEdge, config: Mapping[str, str], unset: frozenset[str]
    ) -> DesiredTopic:
        return DesiredTopic(
            cluster=node.cluster,
            name=node.topic,
            origin=MirroredBy(edge.flow, edge.source.cluster, edge.source.topic),
            partitions=self.partitions[node],
            replication=self.graph.flow(edge.flow).replication,
            config=dict(sorted(config.items())),
            unset=unset,
            source=self.graph.flow(edge.flow).source,
        )


def quarantine_nodes(graph: ReplicationGraph, edges: Iterable[CopyEdge]) -> dict[TopicNode, CopyEdge]:
    """Returns the quarantine topics of these copies, each with the copy whose bad records it takes."""
    quarantines: dict[TopicNode, CopyEdge] = {}
    for edge in edges:
        if graph.flow(edge.flow).quarantines:
            cluster, mirror = edge.destination
            quarantines.setdefault(TopicNode(cluster, quarantine_topic(mirror)), edge)
    return quarantines


def _quarantines(graph: ReplicationGraph, made: DesiredTopics) -> dict[TopicNode, DesiredTopic]:
    """Returns the quarantine topics, without those that the topology declares: these are the topology's own.

    Settings of a topic that exists are not changed: an operator may have decided about its records.
    """
    topics: dict[TopicNode, DesiredTopic] = {}
    for node, edge in sorted(quarantine_nodes(graph, graph.live.edges).items()):
        if node in graph.declared_topics or node in made.topics:
            continue
        flow = graph.flow(edge.flow)
        mirror = made.settings[edge.destination]
        config = {} if graph.exists(node) else quarantine_settings(mirror.effective(LARGEST))
        topics[node] = DesiredTopic(
            cluster=node.cluster,
            name=node.topic,
            origin=QuarantineOf(flow.name, edge.destination.topic),
            partitions=made.partitions[edge.destination],
            replication=flow.replication,
            config=dict(sorted(supported(config, made.defaults(node.cluster)).items())),
            source=flow.source,
        )
    return topics


def kept_topics(graph: ReplicationGraph, made: Collection[TopicNode]) -> dict[TopicNode, DesiredTopic]:
    """Returns the mirrors of promoted and failed-over flows: they stay this topology's and stay as they are.

    Limits that a failback lifted are restored.
    """
    kept = {}
    for _, flow in sorted(graph.topology.flows.items()):
        for source_topic, mirror in existing_mirrors(graph, flow):
            node = TopicNode(flow.destination_cluster, mirror)
            if node not in made and not flow.copies(source_topic):
                origin = MirroredBy(flow.name, flow.source_cluster, source_topic)
                before = graph.observed.owned[topic_address(*node)].before
                kept[node] = DesiredTopic(
                    node.cluster,
                    node.topic,
                    origin,
                    unset=frozenset(key for key, value in before.items() if not value),
                    restored=own_values(before),
                    source=flow.source,
                )
    return kept


def existing_mirrors(
    graph: ReplicationGraph, flow: Flow, *, declared: bool = False
) -> Iterator[tuple[str, str]]:
    """Yields the source topic and the mirror for each existing mirror that the registry says the flow made.

    With `declared`, mirrors that the topology has declared since are yielded too.
    """
    origins = (flow_origin(flow.name), *((DECLARED,) if declared else ()))
    cluster = graph.cluster(flow.destination_cluster)
    for entry in cluster.owned if cluster is not None else ():
        name = entry.address.name
        ours = entry.topology == graph.topology.name and entry.address.cluster == flow.destination_cluster
        if not ours or entry.address.kind is not Kind.TOPIC or entry.origin not in origins:
            continue
        source_topic = graph.router.routes[flow.name].source_topic(name)
        if source_topic is not None and cluster is not None and name in cluster.topics:
            yield source_topic, name


def partitions_of(graph: ReplicationGraph) -> Mapping[TopicNode, int | None]:
    """Returns how many partitions each topic must have: at least as many as each of its sources.

    The number is passed along chains and loops. It is None if nothing determines it. A declared number stays.
    """
    wanted = {node: _own(node, graph) for node in sorted(graph.live.nodes)}
    out = graph.live.outgoing
    waiting = [node for node, count in wanted.items() if count is not None]
    while waiting:
        node = waiting.pop()
        count = wanted[node]
        assert count is not None
        for edge in out.get(node, ()):
            destination = edge.destination
            topic = graph.declared_topics.get(destination)
            if topic is not None and topic.partitions is not None:
                continue
            if (wanted[destination] or 0) < count:
                wanted[destination] = count
                waiting.append(destination)
    return wanted


def _own(node: TopicNode, graph: ReplicationGraph) -> int | None:
    """Returns the topic's declared or live number of partitions; None if it is unknown."""
    topic = graph.declared_topics.get(node)
    if topic is not None and topic.partitions is not None:
        return topic.partitions
    cluster = graph.cluster(node.cluster)
    if cluster is None:
        return None
    live = cluster.topics.get(node.topic)
    if live is not None:
        return live.partitions
    # A declared topic without a number of partitions gets the cluster's default.
    return cluster.default_partitions if topic is not None else None
