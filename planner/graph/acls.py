"""The ACLs that the clusters should hold: declared, mirrored with their topics, or protecting mirrors.

Of the source's rules only those on topics are mirrored. ALLOW WRITE never is: who may write at the source has
no business in the mirror. ALLOW ALL becomes READ and DESCRIBE. A prefix stays one where the flow takes every
topic under it and the rename can say it; elsewhere each topic gets a rule of its own. A rule on every topic
(`*`) is not mirrored, for it would open, or close, the destination's own topics too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from planner.graph.messages import listed, of_flow
from planner.graph.prefix import prefix_there
from planner.graph.protect import protection
from planner.graph.replication_graph import ReplicationGraph
from planner.graph.topic_graph import CopyEdge
from planner.model.address import Kind
from planner.model.desired import Declared, DesiredAcl, MirroredBy
from planner.model.diagnostic import Diagnostic, warning
from planner.model.observed import Observed
from planner.model.topology import AclRule, Flow, Protect
from runtime.contract.spec.naming import is_internal

EVERY = "*"


@dataclass(frozen=True, slots=True)
class DesiredAcls:
    desired: tuple[DesiredAcl, ...]
    diagnostics: tuple[Diagnostic, ...]


def acls_of(world: ReplicationGraph, observed: Observed) -> DesiredAcls:
    wanted = {acl.rule: DesiredAcl(acl.rule, Declared(), acl.source) for acl in world.topology.acls}
    said: list[Diagnostic] = []
    edges = world.real.by_flow()
    running = [flow for flow in world.flows if world.carried.running(flow.name)]
    for acl in _mirrored([flow for flow in running if flow.acls_sync], edges, world, observed, said):
        wanted.setdefault(acl.rule, acl)
    for flow in running:
        if flow.protect is Protect.ACL:
            for acl in protection(flow, edges.get(flow.name, ()), world, observed, said):
                wanted.setdefault(acl.rule, acl)
    return DesiredAcls(tuple(wanted[rule] for rule in sorted(wanted)), tuple(said))


def acls_known(flow: Flow, observed: Observed) -> bool:
    """Whether all that the flow's ACLs depend on could be read."""
    needed = set()
    if flow.acls_sync:
        needed.add(flow.source_cluster)
    if flow.protect is Protect.ACL:
        needed.add(flow.destination_cluster)
    clusters = [observed.reachable(name) for name in needed]
    return all(cluster is not None and "acls" not in cluster.unreadable for cluster in clusters)


def _mirrored(
    flows: Sequence[Flow],
    edges: Mapping[str, list[CopyEdge]],
    world: ReplicationGraph,
    observed: Observed,
    said: list[Diagnostic],
) -> list[DesiredAcl]:
    """Along chains in one plan. A rule that a flow made is no source: it would outlive its own."""
    mirrors = [_Mirror(flow, edges.get(flow.name, ()), world) for flow in flows]
    ends = {end for flow in flows for end in (flow.source_cluster, flow.destination_cluster)}
    rules = {cluster: _own_rules(cluster, world, observed) for cluster in ends}
    found: dict[AclRule, DesiredAcl] = {}
    fresh = True
    while fresh:
        fresh = False
        for mirror in mirrors:
            there = rules[mirror.flow.destination_cluster]
            for acl in [one for rule in sorted(rules[mirror.flow.source_cluster]) for one in mirror.of(rule)]:
                if acl.rule not in there:  # one that is there of its own stays nobody's
                    there.add(acl.rule)
                    found[acl.rule] = acl
                    fresh = True
    for mirror in mirrors:
        said += mirror.about()
    return list(found.values())


def _own_rules(name: str, world: ReplicationGraph, observed: Observed) -> set[AclRule]:
    """The cluster's rules, live and declared, less those that a flow has made there."""
    cluster = observed.reachable(name)
    live: set[AclRule] = set()
    if cluster is not None:
        made = {
            entry.address.name
            for entry in cluster.owned
            if entry.address.kind is Kind.ACL and entry.origin.startswith("flow.")
        }
        live = {rule for rule in cluster.acls or () if rule.name not in made}
    return live | {acl.rule for acl in world.topology.acls if acl.rule.cluster == name}


def _operations(rule: AclRule) -> Iterable[str]:
    if rule.permission == "DENY":
        return (rule.operation,)
    if rule.operation == "ALL":
        return ("READ", "DESCRIBE")
    return () if rule.operation == "WRITE" else (rule.operation,)


class _Mirror:
    """What a flow makes of the rules at its source."""

    def __init__(self, flow: Flow, edges: Sequence[CopyEdge], world: ReplicationGraph) -> None:
        self.flow = flow
        self._names = {edge.source.topic: edge.destination.topic for edge in edges}
        self._way = world.router.ways[flow.name]
        self._all = sorted(node.topic for node in world.real.nodes if node.cluster == flow.source_cluster)
        self._left = {one for one in self._all if self._promoted(one, world)}
        self._everywhere: set[str] = set()
        self._split: set[str] = set()

    def _promoted(self, topic: str, world: ReplicationGraph) -> bool:
        """On its own: it was the flow's, and its readers go on reading under the same rules."""
        name = self.flow.name
        return world.carried.promoted(name, topic) and world.router.name_there(name, topic) is not None

    def of(self, rule: AclRule) -> Iterator[DesiredAcl]:
        operations = tuple(_operations(rule))
        if rule.resource_type != "TOPIC" or not operations or is_internal(rule.resource):
            return
        if rule.resource == EVERY and rule.pattern == "LITERAL":
            self._everywhere.add(rule.principal)
            return
        for topic, resource, pattern in self._resources(rule):
            there = replace(rule, cluster=self.flow.destination_cluster, resource=resource, pattern=pattern)
            origin = MirroredBy(self.flow.name, self.flow.source_cluster, topic)
            for operation in operations:
                yield DesiredAcl(replace(there, operation=operation), origin, self.flow.source)

    def _resources(self, rule: AclRule) -> list[tuple[str, str, Literal["LITERAL", "PREFIXED"]]]:
        """Source name, name at the destination, pattern."""
        if rule.pattern == "LITERAL":
            there = self._names.get(rule.resource)
            return [(rule.resource, there, "LITERAL")] if there is not None else []
        under = [topic for topic in self._all if topic.startswith(rule.resource)]
        taken = [topic for topic in under if topic in self._names]
        if not taken:
            return []
        whole = all(topic in self._names or topic in self._left for topic in under)
        prefix = prefix_there(self._way, rule.resource) if whole else None
        if prefix is not None:
            return [(rule.resource, prefix, "PREFIXED")]
        self._split.add(rule.resource)
        return [(topic, self._names[topic], "LITERAL") for topic in taken]

    def about(self) -> Iterator[Diagnostic]:
        flow = self.flow
        if self._everywhere:
            yield of_flow(
                warning,
                flow,
                f"rules on every topic (*) of {flow.source_cluster} are not mirrored, for they would reach"
                f" {flow.destination_cluster}'s own topics: {listed(self._everywhere)}",
                f"declare under acls what these principals may do at {flow.destination_cluster}",
                "acl-on-everything",
            )
        if self._split:
            yield of_flow(
                warning,
                flow,
                "rules on a prefix are mirrored topic by topic, for the flow does not take every topic under"
                f" it or its rename cannot say it: {listed(self._split)}",
                "a new topic gets its rules at the next apply; or declare a prefixed rule under acls",
                "acl-prefix",
            )
