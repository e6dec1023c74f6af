"""The ACLs that the clusters should hold: declared and mirrored rules, those of `protect: acl`, and fences.

Only rules on topics are mirrored (`runtime.contract.spec.acls`), along chains of flows in one plan. Where a
flow ended or its source can't be read, its rules stay, and with them those that further flows made from them.
"""

import functools
from collections.abc import Iterator, Sequence

from planner.graph.acl_protection import made_by_protection, protection
from planner.graph.cutovers import fence_rules
from planner.graph.messages import flow_diagnostic, listed
from planner.graph.replication_graph import ReplicationGraph
from planner.graph.topics import existing_mirrors
from planner.model.address import Kind
from planner.model.desired import Declared, DesiredAcl, MirroredBy
from planner.model.diagnostic import Diagnostic, warning
from planner.model.topology import AclRule, Flow
from runtime.contract.spec.acls import AclMirror


def acls_of(graph: ReplicationGraph) -> tuple[list[DesiredAcl], list[Diagnostic]]:
    """Returns the desired ACLs of all clusters, with warnings about rules that can't be mirrored."""
    wanted = {acl.rule: DesiredAcl(acl.rule, Declared(), acl.source) for acl in graph.topology.acls}
    diagnostics: list[Diagnostic] = []
    running = [flow for flow in graph.flows if flow.runs]
    mirrors = [_Mirror(flow, graph) for flow in running if flow.acls_sync]
    for acl in _mirrored(mirrors, graph, diagnostics):
        wanted.setdefault(acl.rule, acl)
    for acl in protection(graph, list(wanted), diagnostics):
        wanted.setdefault(acl.rule, acl)
    for acl in fence_rules(graph):
        wanted.setdefault(acl.rule, acl)
    for acl in _kept(mirrors, graph):
        wanted.setdefault(acl.rule, acl)
    return [wanted[rule] for rule in sorted(wanted)], diagnostics


def acls_known(flow: Flow, graph: ReplicationGraph) -> bool:
    """Returns whether everything that the flow's ACLs depend on could be read."""
    needed = set()
    if flow.acls_sync:
        needed.add(flow.source_cluster)
    if flow.protect == "acl":
        needed.add(flow.destination_cluster)
    clusters = [graph.cluster(name) for name in needed]
    return all(cluster is not None and "acls" not in cluster.unreadable for cluster in clusters)


def _mirrored(
    mirrors: "Sequence[_Mirror]", graph: ReplicationGraph, diagnostics: list[Diagnostic]
) -> list[DesiredAcl]:
    """Mirrors rules along chains of flows in one plan.

    A rule that a flow made is never mirrored again: it would outlive the rule that it was made from.
    """
    flows = [mirror.flow for mirror in mirrors]
    ends = {end for flow in flows for end in flow.ends}
    rules = {cluster: _own_rules(cluster, graph) for cluster in ends}
    mirrored: dict[AclRule, DesiredAcl] = {}
    fresh = True
    while fresh:
        fresh = False
        for mirror in mirrors:
            destination = rules[mirror.flow.destination_cluster]
            at_source = sorted(rules[mirror.flow.source_cluster])
            for acl in [copied for rule in at_source for copied in mirror.of(rule)]:
                if acl.rule not in destination:  # a rule that exists without a flow stays unowned
                    destination.add(acl.rule)
                    mirrored[acl.rule] = acl
                    fresh = True
    for mirror in mirrors:
        diagnostics += mirror.about()
    return list(mirrored.values())


def _own_rules(name: str, graph: ReplicationGraph) -> set[AclRule]:
    """Returns the cluster's live and declared rules, without those that a flow made there."""
    cluster = graph.cluster(name)
    live: set[AclRule] = set()
    if cluster is not None:
        made = {
            entry.address.name
            for entry in cluster.owned
            if entry.address.kind is Kind.ACL
            and (entry.flow is not None or (entry.is_fence and entry.created))
        } | made_by_protection(cluster.owned)
        live = {rule for rule in cluster.acls or () if rule.name not in made}
    return live | {acl.rule for acl in graph.topology.acls if acl.rule.cluster == name}


class _Mirror:
    """Mirrors the rules at the source of one flow."""

    def __init__(self, flow: Flow, graph: ReplicationGraph) -> None:
        self.flow = flow
        topics = [node.topic for node in graph.live.nodes if node.cluster == flow.source_cluster]
        # Topics that were promoted on their own: their readers keep their mirrored rules.
        left = {
            topic
            for topic in topics
            if flow.has_promoted(topic) and graph.router.destination_topic(flow.name, topic) is not None
        }
        names = {edge.source.topic: edge.destination.topic for edge in graph.live.by_flow.get(flow.name, ())}
        self._mirror = AclMirror(graph.router.routes[flow.name], names, topics, left)

    def of(self, rule: AclRule) -> Iterator[DesiredAcl]:
        """Yields the destination's rules that follow from one rule at the source."""
        for topic, there in self._mirror.of(rule):
            origin = MirroredBy(self.flow.name, self.flow.source_cluster, topic)
            yield DesiredAcl(there, origin, self.flow.source)

    def about(self) -> Iterator[Diagnostic]:
        """Yields a warning for each kind of rule that could not be mirrored as it is."""
        flow = self.flow
        if self._mirror.everywhere:
            yield flow_diagnostic(
                warning,
                flow,
                f"rules on every topic (*) of {flow.source_cluster} are not mirrored: they would apply to"
                f" {flow.destination_cluster}'s own topics too: {listed(self._mirror.everywhere)}",
                f"declare under acls what these principals may do at {flow.destination_cluster}",
                "acl-on-everything",
            )
        if self._mirror.split:
            yield flow_diagnostic(
                warning,
                flow,
                "prefixed rules are mirrored topic by topic: the flow does not take every topic under the"
                f" prefix, or its rename has no such prefix: {listed(self._mirror.split)}",
                "a new topic gets its rules within follow; or declare a prefixed rule under acls",
                "acl-prefix",
            )


def _kept(mirrors: Sequence[_Mirror], graph: ReplicationGraph) -> Iterator[DesiredAcl]:
    """Yields mirrored rules that stay although they can't be derived now.

    These are the rules of promoted or failed-over topics, those of flows whose source ACLs could not be read,
    and what further flows made from them.
    """
    made = functools.cache(lambda name: _made(graph.flow(name), graph))
    kept, silent = list(_left_by_flows(graph)), set[AclRule]()
    for name, flow in graph.topology.flows.items():
        if not flow.runs or acls_known(flow, graph):
            continue
        if graph.cluster(flow.source_cluster) is not None:
            kept += [_mirrored_by(flow, rule) for rule in made(name)]
        elif flow.acls_sync:
            silent |= made(name)  # unknown
    yield from kept
    rules = {acl.rule for acl in kept} | silent
    fresh = sorted(rules)
    while fresh:
        rule = fresh.pop()
        for mirror in mirrors:
            for acl in mirror.of(rule) if mirror.flow.source_cluster == rule.cluster else ():
                if acl.rule in made(mirror.flow.name) and acl.rule not in rules:
                    rules.add(acl.rule)
                    fresh.append(acl.rule)
                    yield acl


def _left_by_flows(graph: ReplicationGraph) -> Iterator[DesiredAcl]:
    """Yields the rules on promoted mirrors that stay: readers keep their access.

    A DENY WRITE rule is not among them. It goes, since the topic's writers are at the destination now.
    """
    for _, flow in sorted(graph.topology.flows.items()):
        if flow.runs and not flow.promoted:
            continue
        made = _made(flow, graph)
        mirrors = [
            mirror
            for source_topic, mirror in existing_mirrors(graph, flow, declared=True)
            if made and not flow.copies(source_topic)
        ]
        for rule in made:
            denies_writes = rule.permission == "DENY" and rule.operation == "WRITE"
            if not denies_writes and any(map(rule.covers, mirrors)):
                yield _mirrored_by(flow, rule)


def _made(flow: Flow, graph: ReplicationGraph) -> set[AclRule]:
    """Returns the rules that the flow made and that exist."""
    destination = graph.cluster(flow.destination_cluster)
    if destination is None:
        return set()
    made = {
        entry.address.name
        for entry in destination.owned
        if entry.address.kind is Kind.ACL
        and entry.flow == flow.name
        and entry.topology == graph.topology.name
    }
    return {rule for rule in destination.acls or () if rule.name in made}


def _mirrored_by(flow: Flow, rule: AclRule) -> DesiredAcl:
    return DesiredAcl(rule, MirroredBy(flow.name, flow.source_cluster, rule.resource), flow.source)
