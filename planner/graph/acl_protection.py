"""`protect: acl`: the ACL rules that keep foreign writers off the mirror topics of a cluster.

Kafka has no rule that allows only the job: a DENY beats every ALLOW, so a DENY for User:* would stop the job
too. What is done depends on what lets a principal write a mirror:

- An ALLOW rule for a named principal. That principal is denied WRITE on the mirror.
- An ALLOW rule for User:*. The rule is replaced: the job's principal gets a rule of the same extent, everyone
  keeps its other operations, and everyone may go on writing the topics of its extent that are no protected
  mirrors. The replaced rule is remembered in the registry and restored when no mirror needs it replaced.
- `allow.everyone.if.no.acl.found`, for a mirror that no rule speaks of. The mirror gets rules: the job may do
  everything, everyone may do everything but write.

A rule that the topology declares, or that another topology owns, is not replaced. While the source of a
protected flow does not answer, its mirrors are not known: nothing is replaced, restored or removed then.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from msgspec import Struct, field

from planner.graph.messages import counted, few, flow_diagnostic, listed
from planner.graph.replication_graph import CopyEdge, ReplicationGraph, replication_loops
from planner.model.address import Kind
from planner.model.desired import DesiredAcl, MirroredBy
from planner.model.diagnostic import Diagnostic, warning
from planner.model.observed import ObservedCluster, RegistryEntry
from planner.model.topology import AclRule, Cluster, Flow
from runtime.contract.spec.acls import (
    EVERY_TOPIC,
    EVERYONE,
    NOT_WRITE,
    WITHOUT_RULES,
    TopicRules,
    denial,
    protection_origin,
    rules_of_open_topic,
)
from runtime.contract.spec.naming import INTERNAL_PREFIX
from runtime.contract.spec.route import is_reserved


def protection(
    graph: ReplicationGraph, mirrored: Collection[AclRule], diagnostics: list[Diagnostic]
) -> Iterator[DesiredAcl]:
    """Yields the rules that keep foreign principals from writing the mirrors of protected flows.

    `mirrored` are the rules that flows bring to the clusters.
    """
    protected = [
        flow for _, flow in sorted(graph.topology.flows.items()) if flow.protect == "acl" and flow.runs
    ]
    for name in sorted({flow.destination_cluster for flow in protected}):
        cluster = graph.cluster(name)
        if cluster is None or cluster.acls is None:
            continue
        flows = [flow for flow in protected if flow.destination_cluster == name]
        protection = _ClusterProtection(cluster, flows, graph, mirrored)
        yield from protection.denials()
        if all(graph.cluster(flow.source_cluster) is not None for flow in flows):
            yield from protection.replacements()
            yield from protection.rules_of_open_topics()
        else:
            yield from protection.kept()
        diagnostics += protection.warnings()


def job_principal(cluster: Cluster) -> str | None:
    """Returns the principal of the job: the declared one, else the SASL user; None if it is unknown."""
    if cluster.principal is not None:
        return cluster.principal
    user = cluster.client.get("sasl.username")
    protocol = cluster.client.get("security.protocol")
    sasl = isinstance(protocol, str) and protocol.upper().startswith("SASL")
    return f"User:{user}" if sasl and isinstance(user, str) else None


def made_by_protection(entries: Iterable[RegistryEntry]) -> set[str]:
    """Returns the names of the rules at a cluster that `protect: acl` made."""
    return {
        entry.address.name
        for entry in entries
        if entry.address.kind is Kind.ACL and entry.is_protection and entry.created
    }


class _FlowProtection(Struct):
    """What `protect: acl` can't do for one flow, by the reason."""

    flow: Flow
    unknown: set[str] = field(default_factory=set)  # principals that may be the job
    declared: dict[str, set[str]] = field(default_factory=dict)  # mirrors by a rule that stays
    shared: set[str] = field(default_factory=set)
    open_topics: set[str] = field(default_factory=set)  # everyone may write them, and the job is unknown

    def warnings(self) -> Iterator[Diagnostic]:
        """Yields a warning for each kind of topic that can't be protected."""
        flow, to = self.flow, self.flow.destination_cluster
        declare = (
            f"declare clusters.{to}.principal, or write sasl.username under clusters.{to}.client as plain"
            " text (the password stays a reference); foreign records are found and shown in any case"
        )
        if self.unknown:
            yield flow_diagnostic(
                warning,
                flow,
                f"protect: acl has no effect: the topology does not name the principal of the job, and one of"
                f" {listed(self.unknown)} may be it",
                declare,
                "protect-unknown-principal",
            )
        if self.open_topics:
            yield flow_diagnostic(
                warning,
                flow,
                f"protect: acl does not apply to {counted(self.open_topics)}, which everyone may write: the"
                " topology does not name the principal of the job",
                declare,
                "protect-unknown-principal",
            )
        for rule, topics in sorted(self.declared.items()):
            yield flow_diagnostic(
                warning,
                flow,
                f"protect: acl can't protect {counted(topics)}: everyone may write by {rule}",
                f"narrow that rule at {to}; foreign records are found and shown in any case",
                "protect-everyone",
            )
        if self.shared:
            yield flow_diagnostic(
                warning,
                flow,
                f"protect: acl does not apply to {counted(self.shared)}: clients write it at both sides",
                "nothing needs to be done; set protect: off to silence this",
                "protect-shared",
            )


class _ClusterProtection:
    """The protection of the mirrors at one cluster."""

    def __init__(
        self,
        cluster: ObservedCluster,
        flows: Sequence[Flow],
        graph: ReplicationGraph,
        mirrored: Collection[AclRule],
    ) -> None:
        topology = graph.topology
        self._cluster = cluster
        self._graph = graph
        self._declared = {acl.rule for acl in topology.acls if acl.rule.cluster == cluster.name}
        self._job = job_principal(topology.clusters[cluster.name])
        self._open_without_rules = topology.clusters[cluster.name].allow_everyone_if_no_acl_found
        acls = [entry for entry in cluster.owned if entry.address.kind is Kind.ACL]
        self._own = [entry for entry in acls if entry.topology == topology.name]
        self._foreign = {
            entry.address.name: entry.topology for entry in acls if entry.topology != topology.name
        }
        self._rules = self._rules_of_others()
        self._mirrored = TopicRules(rule for rule in mirrored if rule.cluster == cluster.name)
        self._index = TopicRules(self._rules)
        self._mirrors: dict[str, list[tuple[Flow, CopyEdge]]] = {}
        self._flows = {flow.name: _FlowProtection(flow) for flow in flows}
        self._replaced: dict[AclRule, set[str]] = {}
        self._find_mirrors(flows)
        self._find_open_rules()

    def _rules_of_others(self) -> set[AclRule]:
        """Returns the rules as they would be without the topology's flows: live ones that no flow made,
        declared ones, and replaced ones.
        """
        made = made_by_protection(self._own)
        made |= {entry.address.name for entry in self._own if entry.flow is not None and entry.created}
        live = {rule for rule in self._cluster.acls or () if rule.name not in made}
        replaced = {
            rule
            for entry in self._own
            if entry.is_replaced and (rule := AclRule.recorded(self._cluster.name, entry.spec)) is not None
        }
        return live | self._declared | replaced

    def _find_mirrors(self, flows: Iterable[Flow]) -> None:
        shared = {node for loop in replication_loops(self._graph.carried) for node in loop.nodes}
        for flow in flows:
            for edge in self._graph.live.by_flow.get(flow.name, ()):
                if edge.destination in shared:  # both sides write it: no writer is foreign there
                    self._flows[flow.name].shared.add(edge.destination.topic)
                else:
                    self._mirrors.setdefault(edge.destination.topic, []).append((flow, edge))

    def _find_open_rules(self) -> None:
        """Finds the rules for User:* that let everyone write a mirror."""
        for topic, flows in self._mirrors.items():
            for rule in self._index.writing(topic):
                if rule.principal != EVERYONE:
                    continue
                owner = self._foreign.get(rule.name)
                stays = f"owned by the topology {owner!r}" if owner is not None else ""
                stays = "declared in this topology" if rule in self._declared else stays
                for flow, _ in flows:
                    findings = self._flows[flow.name]
                    if stays:
                        findings.declared.setdefault(f"{rule.name} ({stays})", set()).add(topic)
                    elif self._job is None:
                        findings.open_topics.add(topic)
                    else:
                        self._replaced.setdefault(rule, set()).add(flow.name)

    def denials(self) -> Iterator[DesiredAcl]:
        """Yields the rules that deny named principals to write the mirrors."""
        for topic, flows in self._mirrors.items():
            principals = self._index.foreign_writers(topic, self._job)
            for flow, edge in flows:
                for principal in principals:
                    if self._job is None:
                        self._flows[flow.name].unknown.add(principal)
                    else:
                        rule = denial(self._cluster.name, topic, principal)
                        yield DesiredAcl(rule, MirroredBy(flow.name, *edge.source), flow.source)

    def replacements(self) -> Iterator[DesiredAcl]:
        """Yields the replaced rules for User:*, and the rules in their place."""
        live = set(self._cluster.acls or ())
        for rule, flows in sorted(self._replaced.items()):
            origin = protection_origin(flows)
            source = self._flows[min(flows)].flow.source
            yield DesiredAcl(rule, origin, source, replaced=True)
            for substitute in self._substitutes(rule):
                if substitute not in self._rules:  # a rule that exists without a flow stays unowned
                    gives_back = substitute.principal == EVERYONE and rule not in live
                    yield DesiredAcl(substitute, origin, source, waits=gives_back)

    def _substitutes(self, rule: AclRule) -> Iterator[AclRule]:
        assert self._job is not None
        yield replace(rule, principal=self._job)
        for operation in NOT_WRITE if rule.operation == "ALL" else ("DESCRIBE",):
            yield replace(rule, operation=operation)
        if rule.pattern == "LITERAL" and rule.resource != EVERY_TOPIC:
            return
        if rule.covers(INTERNAL_PREFIX):
            yield replace(rule, operation="WRITE", resource=INTERNAL_PREFIX, pattern="PREFIXED")
        for topic in self._other_topics(rule):
            yield replace(rule, operation="WRITE", resource=topic, pattern="LITERAL")

    def _other_topics(self, rule: AclRule) -> list[str]:
        """Returns the topics under a rule that everyone may go on writing."""
        name = self._cluster.name
        made = {node.topic for node in self._graph.live.nodes if node.cluster == name}
        return sorted(
            topic
            for topic in made.union(self._graph.names.get(name, ()))
            if rule.covers(topic) and topic not in self._mirrors and not is_reserved(topic)
        )

    def rules_of_open_topics(self) -> Iterator[DesiredAcl]:
        """Yields the rules of mirrors that everyone may write because no rule speaks of them."""
        if not self._open_without_rules:
            return
        for topic, flows in sorted(self._mirrors.items()):
            if self._index.of(topic):
                continue
            if self._job is None:
                for flow, _ in flows:
                    self._flows[flow.name].open_topics.add(topic)
                continue
            flow = flows[0][0]
            origin = protection_origin({flow.name for flow, _ in flows}, instead=WITHOUT_RULES)
            closed = bool(self._mirrored.of(topic))  # by mirrored rules: then only the job lacks its right
            for rule in rules_of_open_topic(self._cluster.name, topic, self._job, closed=closed):
                yield DesiredAcl(rule, origin, flow.source)

    def kept(self) -> Iterator[DesiredAcl]:
        """Yields the rules of an earlier plan as they are."""
        for entry in self._own:
            rule = AclRule.recorded(self._cluster.name, entry.spec) if entry.is_protection else None
            if rule is not None and (entry.is_replaced or rule in (self._cluster.acls or ())):
                yield DesiredAcl(rule, entry.origin, replaced=entry.is_replaced)

    def warnings(self) -> Iterator[Diagnostic]:
        """Yields a warning for each kind of topic that can't be protected, and for each rule to replace."""
        for findings in self._flows.values():
            yield from findings.warnings()
        live = set(self._cluster.acls or ())
        for rule, flows in sorted(self._replaced.items()):
            if rule in live:
                yield self._replaces(rule, flows)

    def _replaces(self, rule: AclRule, flows: Collection[str]) -> Diagnostic:
        flow = self._flows[min(flows)].flow
        others = (
            self._other_topics(rule) if rule.resource == EVERY_TOPIC or rule.pattern == "PREFIXED" else []
        )
        left = f"; everyone may go on writing {counted(others)}" if others else ""
        return flow_diagnostic(
            warning,
            flow,
            f"protect: acl replaces {rule.name} at {self._cluster.name}, by which everyone may write the"
            f" mirrors of {few([f'flow.{name}' for name in sorted(flows)])}: {self._job} gets the rule"
            f" instead{left}",
            "it is restored when the flow is promoted or failed over; a topic that is created later may be"
            " written by everyone after the next apply",
            "protect-replaces",
        )
