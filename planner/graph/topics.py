"""The topics that the clusters should hold: those that are declared, and those that the flows make."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from planner.graph.configs import ConfigRule, PlannedTopicSettings, settings_of
from planner.graph.failback_limits import LARGEST, lifted, own_again, values_before
from planner.graph.partitions import partitions_of
from planner.graph.replication_graph import ReplicationGraph
from planner.graph.topic_graph import CopyEdge, TopicNode, rounds
from planner.model.address import Address, Kind, topic_address
from planner.model.desired import Declared, DesiredTopic, LiftedLimits, MirroredBy
from planner.model.observed import Observed
from planner.model.owned import DECLARED, RegistryEntry
from planner.model.topology import Flow, Provenance, Topic
from runtime.contract.spec.mirror import BOUNDS, supported


@dataclass(frozen=True, slots=True)
class DesiredTopics:
    """`settings`: of every topic once the plan is done. `mirrored`: what its flow asks of each mirror."""

    desired: tuple[DesiredTopic, ...]
    partitions: Mapping[TopicNode, int | None]
    settings: Mapping[TopicNode, PlannedTopicSettings]
    mirrored: Mapping[TopicNode, Mapping[str, str]]


def topics_of(
    world: ReplicationGraph, observed: Observed, provenance: Mapping[str, Provenance]
) -> DesiredTopics:
    maker = _Maker(world, observed, provenance)
    for component in rounds(world.real.edges):
        maker.make(component)
    for node in sorted(world.declared.keys() - maker.settings.keys()):
        maker.make([node])
    kept = kept_topics(world, observed, maker.owned, set(maker.desired))
    desired = {**maker.desired, **kept}
    return DesiredTopics(
        tuple(desired[node] for node in sorted(desired)), maker.partitions, maker.settings, maker.mirrored
    )


class _Maker:
    """Goes from sources to destinations, so that a chain of flows is one plan."""

    def __init__(
        self, world: ReplicationGraph, observed: Observed, provenance: Mapping[str, Provenance]
    ) -> None:
        self.world = world
        self.observed = observed
        self.rules = {flow.name: ConfigRule(flow.configs, provenance[flow.name]) for flow in world.flows}
        self.into = world.real.incoming()
        self.partitions = partitions_of(world, observed)
        self.owned = {
            entry.address: entry
            for name in observed.clusters
            if (cluster := observed.reachable(name)) is not None
            for entry in cluster.owned
            if entry.topology == world.topology.name
        }
        self.settings: dict[TopicNode, PlannedTopicSettings] = {}
        self.mirrored: dict[TopicNode, Mapping[str, str]] = {}
        self.desired: dict[TopicNode, DesiredTopic] = {}

    def make(self, component: list[TopicNode]) -> None:
        """Topics that come round to each other: those that exist first, then what is made of them."""
        ready = [node for node in component if len(component) == 1 or self._stands(node)]
        for node in ready:
            outside = [edge for edge in self._copies(node) if edge.source not in component]
            self._one(node, outside[0] if outside else None)
        rest = [node for node in component if node not in ready]
        while rest:
            node, edge = next(
                (node, edge) for node in rest for edge in self.into[node] if edge.source in self.settings
            )
            self._one(node, edge)
            rest.remove(node)

    def _stands(self, node: TopicNode) -> bool:
        return self.world.exists(node) or node in self.world.declared

    def _copies(self, node: TopicNode) -> list[CopyEdge]:
        """The copies that make the topic a mirror. A failback makes none of a topic that is there already."""
        return [edge for edge in self.into.get(node, ()) if not self._brings_back(edge)]

    def _brings_back(self, edge: CopyEdge) -> bool:
        return self.world.flow(edge.flow).reverse_of is not None and self._stands(edge.destination)

    def _one(self, node: TopicNode, parent: CopyEdge | None) -> None:
        """`parent` is the copy whose source the settings follow. A topic that comes round follows none."""
        cluster = self.observed.reachable(node.cluster)
        now = settings_of(cluster.topics.get(node.topic) if cluster is not None else None, cluster)
        copies = self._copies(node)
        backs = [edge for edge in self.into.get(node, ()) if edge not in copies]
        given, unset = self._mirrored(node, parent, now) if copies else ({}, frozenset[str]())
        given = supported(given, now.defaults)
        lifting = self._lifting(node, backs, now) if backs and not copies else {}
        before = self._before(node)
        topic = self.world.declared.get(node)
        if topic is not None and not copies and not backs:
            given = dict(self._left(node))
        declared = topic.config if topic is not None else {}
        config = {**given, **lifting, **declared}
        restored = {} if backs else {key: value for key, value in before.items() if key not in config}
        if topic is not None:
            unset = self._applied(node) - config.keys()  # it goes with this very plan
        unset |= frozenset(restored)
        if topic is not None or copies or backs:
            made = (
                self._declared(node, topic, config, frozenset(given) - declared.keys())
                if topic is not None
                else self._mirror(node, parent or [*copies, *backs][0], config, unset)
            )
            self.desired[node] = replace(
                made,
                lifted=LiftedLimits(backs[0].flow, values_before(now, lifting, before)) if lifting else None,
                restored=own_again(restored),
            )
        left = {key: value for key, value in now.explicit.items() if key not in unset}
        own = {key: now.defaults[key] for key in unset if key in now.defaults}
        explicit = {**left, **own_again(restored), **config}
        self.settings[node] = replace(now, explicit=explicit, inherited={**now.inherited, **own})

    def _mirrored(
        self, node: TopicNode, parent: CopyEdge | None, now: PlannedTopicSettings
    ) -> tuple[dict[str, str], frozenset[str]]:
        """What the flows give a mirror, and what they take back."""
        if parent is None or self.world.is_dim(parent.source):
            return dict(BOUNDS), frozenset()
        rule = self.rules[parent.flow]
        self.mirrored[node] = rule.mirrored(self.settings[parent.source])
        config = {**BOUNDS, **self.mirrored[node]}
        return config, rule.taken_back(now.explicit, config)

    def _lifting(self, node: TopicNode, backs: list[CopyEdge], now: PlannedTopicSettings) -> dict[str, str]:
        largest = [self._largest(edge) for edge in backs if edge.source in self.settings]
        declared = self.world.declared.get(node)
        return lifted(
            now,
            max((one for one in largest if one is not None), default=None),
            self._before(node),
            declared.config.keys() if declared is not None else (),
        )

    def _largest(self, edge: CopyEdge) -> int | None:
        value = self.rules[edge.flow].mirrored(self.settings[edge.source]).get(LARGEST, "")
        return int(value) if value.isdecimal() else None

    def _before(self, node: TopicNode) -> Mapping[str, str]:
        entry = self._entry(node)
        return entry.before if entry is not None else {}

    def _entry(self, node: TopicNode) -> RegistryEntry | None:
        return self.owned.get(topic_address(node.cluster, node.topic))

    def _left(self, node: TopicNode) -> Mapping[str, str]:
        """What a flow that was promoted or failed over gave to a declared topic: it stays as it is.

        An entry of an earlier release does not tell what the flow gave: then all of it stays.
        """
        entry = self._entry(node)
        filled = entry is not None and any(
            self._ended(one, node) for one in self.world.topology.flows.values() if one.reverse_of is None
        )
        if entry is None or not filled:
            return {}
        given = entry.mirrored
        return entry.config if given is None else {key: entry.config[key] for key in given}

    def _ended(self, flow: Flow, node: TopicNode) -> bool:
        way = self.world.router.ways[flow.name]
        here = way.topic_here(node.topic) if flow.destination_cluster == node.cluster else None
        return here is not None and way.answer(here).taken and not self.world.carried.carries(flow.name, here)

    def _applied(self, node: TopicNode) -> frozenset[str]:
        """The settings of a declared topic that the registry says this topology gave it."""
        entry = self._entry(node)
        return frozenset() if entry is None else frozenset(entry.config)

    def _declared(
        self, node: TopicNode, topic: Topic, config: Mapping[str, str], mirrored: frozenset[str]
    ) -> DesiredTopic:
        partitions = self.partitions.get(node) if node in self.into else None
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
            config=dict(sorted(config.items())),
            unset=unset,
            source=self.world.flow(edge.flow).source,
        )


def kept_topics(
    world: ReplicationGraph, observed: Observed, owned: Mapping[Address, RegistryEntry], made: set[TopicNode]
) -> dict[TopicNode, DesiredTopic]:
    """Mirrors of promoted and failed-over flows: still this topology's, and left as they are.

    What a failback lifted is restored.
    """
    kept = {}
    for _, flow in sorted(world.topology.flows.items()):
        for here, there in standing_mirrors(world, observed, flow):
            node = TopicNode(flow.destination_cluster, there)
            if node not in made and not world.carried.carries(flow.name, here):
                origin = MirroredBy(flow.name, flow.source_cluster, here)
                before = owned[topic_address(*node)].before
                kept[node] = DesiredTopic(
                    node.cluster,
                    node.topic,
                    origin,
                    unset=frozenset(key for key, value in before.items() if not value),
                    restored=own_again(before),
                    source=flow.source,
                )
    return kept


def standing_mirrors(
    world: ReplicationGraph, observed: Observed, flow: Flow, *, declared: bool = False
) -> Iterator[tuple[str, str]]:
    """Source topic and mirror, of those that the registry says the flow has made and that are there; with
    `declared`, of those that have its names and that the topology has declared since, too.
    """
    origins = (f"flow.{flow.name}", *((DECLARED,) if declared else ()))
    cluster = observed.reachable(flow.destination_cluster)
    for entry in cluster.owned if cluster is not None else ():
        name = entry.address.name
        ours = entry.topology == world.topology.name and entry.address.cluster == flow.destination_cluster
        if not ours or entry.address.kind is not Kind.TOPIC or entry.origin not in origins:
            continue
        here = world.router.ways[flow.name].topic_here(name)
        if here is not None and cluster is not None and name in cluster.topics:
            yield here, name
