"""The ACLs that the clusters should hold: declared rules, mirrored rules, and rules that protect mirrors.

Only rules on topics are mirrored. ALLOW WRITE is never mirrored: writers at the source need no access to the
mirror. ALLOW ALL becomes READ and DESCRIBE. A prefixed rule stays prefixed if the flow takes every topic
under the prefix and the rename keeps a common prefix. Otherwise each topic gets a rule of its own. A rule on
every topic (`*`) is not mirrored: it would also apply to the destination's own topics.

`protect: acl` keeps foreign writers off a flow's mirror topics. Kafka has no rule that allows only the job: a
DENY beats every ALLOW, so a DENY for User:* would stop the job too. Therefore each principal that an ALLOW
rule lets write is denied, except the job's own. A rule is added together with the ALLOW that makes it
necessary. It is removed when that ALLOW is removed or the flow is promoted. No rule is added where no ALLOW
rule names a principal. Either nothing can write there anyway, or the brokers allow everything without a rule.
In the second case the first rule on a topic would shut out its readers and the job.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, assert_never

from planner.graph.messages import counted, flow_diagnostic, listed
from planner.graph.provenance import replication_loops
from planner.graph.replication_graph import CopyEdge, ReplicationGraph
from planner.graph.topics import existing_mirrors
from planner.model.address import Kind
from planner.model.desired import Declared, DesiredAcl, MirroredBy
from planner.model.diagnostic import Diagnostic, warning
from planner.model.observed import Observed
from planner.model.topology import AclRule, Cluster, Flow, Protect
from runtime.contract.spec import rename as rename_rules
from runtime.contract.spec.naming import is_internal
from runtime.contract.spec.rename import SAME_NAME, Match, Table, Template
from runtime.contract.spec.route import CompiledRoute

EVERYONE = "User:*"


def protection(
    flow: Flow,
    edges: Sequence[CopyEdge],
    graph: ReplicationGraph,
    observed: Observed,
    diagnostics: list[Diagnostic],
) -> Iterator[DesiredAcl]:
    """Yields the rules that deny foreign principals to write the flow's mirror topics."""
    cluster = observed.reachable(flow.destination_cluster)
    if cluster is None or cluster.acls is None:
        return
    job = job_principal(graph.topology.clusters[flow.destination_cluster])
    shared = {node for one in replication_loops(graph.live.edges) for node in one.nodes}
    declared = [acl.rule for acl in graph.topology.acls if acl.rule.cluster == cluster.name]
    writers = _Writers((*cluster.acls, *declared))
    unknown: set[str] = set()
    everyone: set[str] = set()
    for edge in edges:
        if edge.destination in shared:
            continue  # both sides write it: no writer is foreign there
        name = edge.destination.topic
        for principal in writers.of(name):
            if principal == EVERYONE:
                everyone.add(name)
            elif job is None:
                unknown.add(principal)
            elif principal != job:
                rule = AclRule(cluster.name, "TOPIC", name, "LITERAL", principal, "*", "WRITE", "DENY")
                yield DesiredAcl(rule, MirroredBy(flow.name, *edge.source), flow.source)
    both = {edge.destination.topic for edge in edges if edge.destination in shared}
    diagnostics += _warnings(flow, unknown, everyone, both)


class _Writers:
    """The principals that ALLOW rules let write, by topic."""

    def __init__(self, rules: Sequence[AclRule]) -> None:
        self._literal: defaultdict[str, set[str]] = defaultdict(set)
        self._prefixed: defaultdict[str, set[str]] = defaultdict(set)
        for rule in rules:
            if (
                rule.resource_type == "TOPIC"
                and rule.permission == "ALLOW"
                and rule.operation in ("WRITE", "ALL")
            ):
                (self._prefixed if rule.pattern == "PREFIXED" else self._literal)[rule.resource].add(
                    rule.principal
                )

    def of(self, topic: str) -> list[str]:
        """Returns the principals that may write a topic, sorted."""
        found = self._literal.get(topic, set()) | self._literal.get("*", set())
        for prefix, principals in self._prefixed.items():
            if topic.startswith(prefix):
                found = found | principals
        return sorted(found)


def job_principal(cluster: Cluster) -> str | None:
    """Returns the principal of the job: the SASL user in the topology; None if it is unknown."""
    user = cluster.client.get("sasl.username")
    protocol = cluster.client.get("security.protocol")
    sasl = isinstance(protocol, str) and protocol.upper().startswith("SASL")
    return f"User:{user}" if sasl and isinstance(user, str) else None


def _warnings(flow: Flow, unknown: set[str], everyone: set[str], shared: set[str]) -> Iterator[Diagnostic]:
    """Yields a warning for each kind of topic that `protect: acl` can't protect."""
    to = flow.destination_cluster
    if unknown:
        yield flow_diagnostic(
            warning,
            flow,
            f"protect: acl has no effect: the topology does not name the principal of the job, and one of"
            f" {listed(unknown)} may be it",
            f"write sasl.username under clusters.{to}.client as plain text (the password stays a reference);"
            " foreign records are found and shown in any case",
            "protect-unknown-principal",
        )
    if everyone:
        yield flow_diagnostic(
            warning,
            flow,
            f"protect: acl can't protect {counted(everyone)}: a rule lets User:* write, and denying"
            " User:* would stop the job too",
            f"narrow that rule at {to}; foreign records are found and shown in any case",
            "protect-everyone",
        )
    if shared:
        yield flow_diagnostic(
            warning,
            flow,
            f"protect: acl does not apply to {counted(shared)}: clients write it at both sides",
            "nothing needs to be done; set protect: off to silence this",
            "protect-shared",
        )


EVERY = "*"


@dataclass(frozen=True, slots=True)
class DesiredAcls:
    """The desired rules, and what was found while they were made."""

    desired: tuple[DesiredAcl, ...]
    diagnostics: tuple[Diagnostic, ...]


def acls_of(graph: ReplicationGraph, observed: Observed) -> DesiredAcls:
    """Returns the desired ACLs of all clusters, with warnings about rules that can't be mirrored."""
    wanted = {acl.rule: DesiredAcl(acl.rule, Declared(), acl.source) for acl in graph.topology.acls}
    diagnostics: list[Diagnostic] = []
    edges = graph.live.by_flow()
    running = [flow for flow in graph.flows if graph.copied.is_running(flow.name)]
    for acl in _mirrored([flow for flow in running if flow.acls_sync], edges, graph, observed, diagnostics):
        wanted.setdefault(acl.rule, acl)
    for flow in running:
        if flow.protect is Protect.ACL:
            for acl in protection(flow, edges.get(flow.name, ()), graph, observed, diagnostics):
                wanted.setdefault(acl.rule, acl)
    return DesiredAcls(tuple(wanted[rule] for rule in sorted(wanted)), tuple(diagnostics))


def acls_known(flow: Flow, observed: Observed) -> bool:
    """Returns whether everything that the flow's ACLs depend on could be read."""
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
    graph: ReplicationGraph,
    observed: Observed,
    diagnostics: list[Diagnostic],
) -> list[DesiredAcl]:
    """Mirrors rules along chains of flows in one plan.

    A rule that a flow made is never mirrored again: it would outlive the rule that it was made from.
    """
    mirrors = [_Mirror(flow, edges.get(flow.name, ()), graph) for flow in flows]
    ends = {end for flow in flows for end in (flow.source_cluster, flow.destination_cluster)}
    rules = {cluster: _own_rules(cluster, graph, observed) for cluster in ends}
    found: dict[AclRule, DesiredAcl] = {}
    fresh = True
    while fresh:
        fresh = False
        for mirror in mirrors:
            destination = rules[mirror.flow.destination_cluster]
            for acl in [one for rule in sorted(rules[mirror.flow.source_cluster]) for one in mirror.of(rule)]:
                if acl.rule not in destination:  # a rule that exists without a flow stays unowned
                    destination.add(acl.rule)
                    found[acl.rule] = acl
                    fresh = True
    for mirror in mirrors:
        diagnostics += mirror.about()
    return list(found.values())


def _own_rules(name: str, graph: ReplicationGraph, observed: Observed) -> set[AclRule]:
    """Returns the cluster's live and declared rules, without those that a flow made there."""
    cluster = observed.reachable(name)
    live: set[AclRule] = set()
    if cluster is not None:
        made = {
            entry.address.name
            for entry in cluster.owned
            if entry.address.kind is Kind.ACL and entry.origin.startswith("flow.")
        }
        live = {rule for rule in cluster.acls or () if rule.name not in made}
    return live | {acl.rule for acl in graph.topology.acls if acl.rule.cluster == name}


def _operations(rule: AclRule) -> Iterable[str]:
    """Returns the operations that a mirrored rule has; nothing for ALLOW WRITE."""
    if rule.permission == "DENY":
        return (rule.operation,)
    if rule.operation == "ALL":
        return ("READ", "DESCRIBE")
    return () if rule.operation == "WRITE" else (rule.operation,)


class _Mirror:
    """Mirrors the rules at the source of one flow."""

    def __init__(self, flow: Flow, edges: Sequence[CopyEdge], graph: ReplicationGraph) -> None:
        self.flow = flow
        self._names = {edge.source.topic: edge.destination.topic for edge in edges}
        self._route = graph.router.routes[flow.name]
        self._all = sorted(node.topic for node in graph.live.nodes if node.cluster == flow.source_cluster)
        self._left = {one for one in self._all if self._promoted(one, graph)}
        self._everywhere: set[str] = set()
        self._split: set[str] = set()

    def _promoted(self, topic: str, graph: ReplicationGraph) -> bool:
        """Returns whether the topic was promoted on its own: its readers keep their mirrored rules."""
        name = self.flow.name
        return (
            graph.copied.is_promoted(name, topic) and graph.router.destination_topic(name, topic) is not None
        )

    def of(self, rule: AclRule) -> Iterator[DesiredAcl]:
        """Yields the destination's rules that follow from one rule at the source."""
        operations = tuple(_operations(rule))
        if rule.resource_type != "TOPIC" or not operations or is_internal(rule.resource):
            return
        if rule.resource == EVERY and rule.pattern == "LITERAL":
            self._everywhere.add(rule.principal)
            return
        for topic, resource, pattern in self._resources(rule):
            destination = replace(
                rule, cluster=self.flow.destination_cluster, resource=resource, pattern=pattern
            )
            origin = MirroredBy(self.flow.name, self.flow.source_cluster, topic)
            for operation in operations:
                yield DesiredAcl(replace(destination, operation=operation), origin, self.flow.source)

    def _resources(self, rule: AclRule) -> list[tuple[str, str, Literal["LITERAL", "PREFIXED"]]]:
        """Returns the source name, the destination name and the pattern of each mirrored resource."""
        if rule.pattern == "LITERAL":
            destination = self._names.get(rule.resource)
            return [(rule.resource, destination, "LITERAL")] if destination is not None else []
        under = [topic for topic in self._all if topic.startswith(rule.resource)]
        taken = [topic for topic in under if topic in self._names]
        if not taken:
            return []
        whole = all(topic in self._names or topic in self._left for topic in under)
        prefix = destination_prefix(self._route, rule.resource) if whole else None
        if prefix is not None:
            return [(rule.resource, prefix, "PREFIXED")]
        self._split.add(rule.resource)
        return [(topic, self._names[topic], "LITERAL") for topic in taken]

    def about(self) -> Iterator[Diagnostic]:
        """Yields a warning for each kind of rule that could not be mirrored as it is."""
        flow = self.flow
        if self._everywhere:
            yield flow_diagnostic(
                warning,
                flow,
                f"rules on every topic (*) of {flow.source_cluster} are not mirrored: they would apply to"
                f" {flow.destination_cluster}'s own topics too: {listed(self._everywhere)}",
                f"declare under acls what these principals may do at {flow.destination_cluster}",
                "acl-on-everything",
            )
        if self._split:
            yield flow_diagnostic(
                warning,
                flow,
                "prefixed rules are mirrored topic by topic: the flow does not take every topic under the"
                f" prefix, or its rename has no such prefix: {listed(self._split)}",
                "a new topic gets its rules at the next apply; or declare a prefixed rule under acls",
                "acl-prefix",
            )


def destination_prefix(compiled: CompiledRoute, prefix: str) -> str | None:
    """Returns the prefix that covers exactly the renamed topics; None if there is none or it is unknown."""
    rename = compiled.route.rename
    if compiled.route.undoes is not None:
        return prefix if rename == SAME_NAME else None
    match rename:
        case Template(text):
            before, _, after = text.replace("{source}", compiled.route.source).partition("{topic}")
            return before + prefix if not after else None
        case Table(names):
            spoken_of = any(old.startswith(prefix) or new.startswith(prefix) for old, new in names)
            return None if spoken_of else prefix
        case Match(pattern, to):
            return _through_match(pattern, to, prefix)
        case _:
            assert_never(rename)


def _through_match(pattern: str, to: str, prefix: str) -> str | None:
    r"""Renames a prefix by a regex: `a-(.*)` → `b-\1` turns the prefix `a-x` into `b-x`.

    Other shapes of regex return None.
    """
    shape = rename_rules.shape(pattern, to)
    groups = [piece for piece in shape.old if isinstance(piece, int)]
    open_end = pattern.removesuffix("$").endswith(("(.*)", "(.+)"))
    if len(groups) != 1 or not open_end or shape.new[-1] != groups[0]:
        return None
    old = "".join(piece for piece in shape.old if isinstance(piece, str))
    new = "".join(piece for piece in shape.new if isinstance(piece, str))
    return new + prefix.removeprefix(old) if prefix.startswith(old) else None


def kept_acls(graph: ReplicationGraph, observed: Observed) -> Iterator[DesiredAcl]:
    """Yields the rules on promoted mirrors that stay: readers keep their access.

    A DENY WRITE rule is not among them. It goes, since the topic's writers are at the destination now.
    """
    for _, flow in sorted(graph.topology.flows.items()):
        destination = observed.reachable(flow.destination_cluster)
        if destination is None or (graph.copied.is_running(flow.name) and not flow.promoted):
            continue
        made = {
            entry.address.name
            for entry in destination.owned
            if entry.address.kind is Kind.ACL
            and entry.origin == f"flow.{flow.name}"
            and entry.topology == graph.topology.name
        }
        mirrors = _promoted_mirrors(graph, observed, flow) if made else []
        for rule in destination.acls or ():
            if rule.name in made and not _denies_writes(rule) and any(_covers(rule, one) for one in mirrors):
                origin = MirroredBy(flow.name, flow.source_cluster, rule.resource)
                yield DesiredAcl(rule, origin, flow.source)


def _promoted_mirrors(graph: ReplicationGraph, observed: Observed, flow: Flow) -> list[str]:
    return [
        destination
        for source_topic, destination in existing_mirrors(graph, observed, flow, declared=True)
        if not graph.copied.copies(flow.name, source_topic)
    ]


def _denies_writes(rule: AclRule) -> bool:
    """Returns whether the rule keeps writers off."""
    return rule.permission == "DENY" and rule.operation == "WRITE"


def _covers(rule: AclRule, topic: str) -> bool:
    """Returns whether the rule applies to the topic."""
    return topic.startswith(rule.resource) if rule.pattern == "PREFIXED" else topic == rule.resource
