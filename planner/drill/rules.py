"""Tries ACL rules on the copy: principals get rights, and brokers are asked which rules there are.

The job has the rights that the topology declares for it, else those that the documentation lists. Another
principal is the drill's own. It may write each protected mirror, until `protect: acl` denies it: without a
right there would be nothing to take away. It may read each topic whose rules `acls.sync` brings to mirrors.
"""

from collections.abc import Collection, Iterable, Iterator

from planner.drill.lab_copy import OTHER
from planner.drill.replica import Replica
from planner.drill.routes import DrillRoute
from planner.drill.scenario_record import DrillAborted
from planner.graph.job_rights import (
    EVERY,
    JobRight,
    missing_rights,
    rights_at_destination,
    rights_at_source,
)
from planner.kafka import ClusterClient, run_at
from planner.kafka.principals import read_acls
from planner.model.topology import Flow
from planner.observe.rights import patiently, refused_writes
from runtime.contract.spec.acls import AclRule
from runtime.contract.spec.selection import written_out
from runtime.contract.spec.transform import quarantine_topic
from runtime.kafka.protocol.administration import AclBinding
from runtime.kafka.protocol.changes import CreateAclsRequest, RefusedRules

GROUPS = "drill-"  # the consumer groups of the standard drill begin so
WITHIN_S = 60.0  # for brokers to know a rule
_REQUEST_S = 30.0
# The rules of a topology can't know the groups of the standard drill.
_DRILL_GROUPS = [JobRight("GROUP", GROUPS, "PREFIXED", operation) for operation in ("DESCRIBE", "READ")]


def grant_rights(replica: Replica, routes: Collection[DrillRoute]) -> None:
    """Lets the drill's principal read source topics, and write mirrors, where flows have a say in it."""
    wanted = {(route.destination, route.mirror, "WRITE") for route in routes if route.protected}
    wanted |= {(route.source, route.topic, "READ") for route in routes if route.rules_synced}
    for cluster in sorted({cluster for cluster, _, _ in wanted}):
        rules = [
            AclRule(cluster, "TOPIC", topic, "LITERAL", f"User:{OTHER}", "*", operation, "ALLOW")
            for at, topic, operation in wanted
            if at == cluster
        ]
        _create(replica, cluster, rules)


def grant_job_rights(replica: Replica) -> None:
    """Gives the jobs what they need beside the declared rules: the drill's groups, and rules of elsewhere.

    A rule that exists already is given again, so it may be called after each change of the topology.
    """
    for cluster, copy in replica.copies.items():
        if copy.principal is not None:
            rights = {*_DRILL_GROUPS, *(() if copy.exact else _documented_rights(replica, cluster))}
            _create(replica, cluster, {right.rule(cluster, copy.principal) for right in rights})


def lacking(replica: Replica, cluster: str, rights: Iterable[JobRight]) -> list[JobRight]:
    """Returns which of the rights the cluster's rules do not give to its job."""
    principal = replica.copies[cluster].principal or ""
    given = {right.rule(cluster, principal) for right in _DRILL_GROUPS}
    return missing_rights(
        rights,
        [rule for rule in _rules_at(replica, cluster) if rule not in given],
        principal,
        open_without_rules=replica.topology.clusters[cluster].allow_everyone_if_no_acl_found,
    )


def rights_needed(flow: Flow, route: DrillRoute) -> Iterator[tuple[str, JobRight]]:
    """Yields what the job of a flow needs for this route of it, each right with its cluster."""
    mirrors = [route.mirror, quarantine_topic(route.mirror)] if flow.quarantines else [route.mirror]
    yield from ((route.source, right) for right in rights_at_source(flow, [route.topic]))
    yield from ((route.destination, right) for right in rights_at_destination(flow, mirrors))


def _documented_rights(replica: Replica, cluster: str) -> Iterator[JobRight]:
    """Yields the rights of both roles for the topics of a cluster's flows: a failback turns the roles."""
    flows = replica.topology.flows.values()
    part = [flow for flow in flows if cluster in flow.ends]
    topics = {route.topic for route in replica.routes if route.source == cluster}
    topics |= {route.mirror for route in replica.routes if route.destination == cluster}
    if replica.topology.file_flows or any(
        written_out(entry) is None for flow in part for entry in flow.topics.include
    ):
        topics = {EVERY}
    for flow in part:
        quarantines = {quarantine_topic(topic) for topic in topics - {EVERY}} if flow.quarantines else set()
        yield from rights_at_source(flow, topics)
        yield from rights_at_destination(flow, topics | quarantines)


def writable(replica: Replica, cluster: str, topics: Collection[str]) -> set[str]:
    """Returns the topics of a cluster that the drill's principal may write."""
    endpoint = replica.endpoint(cluster, OTHER)
    refused = run_at(endpoint, lambda client: refused_writes(client, sorted(topics)), _REQUEST_S)
    return set(topics) - refused


def readable(replica: Replica, cluster: str, topics: Collection[str]) -> set[str]:
    """Returns the topics of a cluster with a rule that lets the drill's principal read them."""
    wanted = ("TOPIC", "LITERAL", f"User:{OTHER}", "READ", "ALLOW")
    return set(topics) & {
        rule.resource
        for rule in _rules_at(replica, cluster)
        if (rule.resource_type, rule.pattern, rule.principal, rule.operation, rule.permission) == wanted
    }


def _rules_at(replica: Replica, cluster: str) -> tuple[AclRule, ...]:
    return run_at(replica.endpoint(cluster), read_acls, _REQUEST_S) or ()


def _create(replica: Replica, cluster: str, rules: Iterable[AclRule]) -> None:
    request = CreateAclsRequest([AclBinding.of(rule) for rule in rules])

    async def create(client: ClusterClient) -> RefusedRules:
        return await patiently(lambda: client.ask_controller(request), WITHIN_S)

    for refusal in run_at(replica.endpoint(cluster), create, _REQUEST_S):
        if refusal is not None:
            raise DrillAborted(f"{cluster} refused a rule of the drill: {refusal.error.name}")
