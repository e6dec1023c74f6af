"""`protect: acl`: ACL rules that keep foreign writers off a flow's mirror topics.

Kafka has no rule that allows only the job: a DENY beats every ALLOW, so a DENY for User:* would stop the job
too. Therefore each principal that an ALLOW rule lets write is denied, except the job's own. A rule is added
together with the ALLOW that makes it necessary. It is removed when that ALLOW is removed or the flow is
promoted.

No rule is added where no ALLOW rule names a principal. Either nothing can write there anyway, or the brokers
allow everything without a rule. In the second case the first rule on a topic would shut out its readers and
the job.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from planner.graph.messages import counted, flow_diagnostic, listed
from planner.graph.provenance import replication_loops
from planner.graph.replication_graph import ReplicationGraph
from planner.graph.topic_graph import CopyEdge
from planner.model.desired import DesiredAcl, MirroredBy
from planner.model.diagnostic import Diagnostic, warning
from planner.model.observed import Observed
from planner.model.topology import AclRule, Cluster, Flow

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
    to = flow.destination_cluster
    if unknown:
        yield flow_diagnostic(
            warning,
            flow,
            f"protect: acl keeps nobody off: the topology does not tell as whom the job writes, and one of"
            f" {listed(unknown)} may be the job",
            f"write sasl.username under clusters.{to}.client as plain text (the password stays a reference);"
            " foreign records are found and shown in any case",
            "protect-unknown-principal",
        )
    if everyone:
        yield flow_diagnostic(
            warning,
            flow,
            f"protect: acl cannot close {counted(everyone)}: a rule lets User:* write, and denying"
            " User:* would stop the job too",
            f"narrow that rule at {to}; foreign records are found and shown in any case",
            "protect-everyone",
        )
    if shared:
        yield flow_diagnostic(
            warning,
            flow,
            f"protect: acl does not apply to {counted(shared)}: both sides write",
            "nothing needs to be done; set protect: off to silence this",
            "protect-shared",
        )
