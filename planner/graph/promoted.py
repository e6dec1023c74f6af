"""What becomes of topics that a flow no longer copies because they were promoted, alone or with all of it."""

from collections.abc import Iterator

from planner.graph.replication_graph import ReplicationGraph
from planner.graph.topics import standing_mirrors
from planner.model.address import Kind
from planner.model.desired import DesiredAcl, MirroredBy
from planner.model.observed import Observed
from planner.model.topology import AclRule, Flow


def promoted_topics(world: ReplicationGraph, observed: Observed, flow: Flow) -> tuple[str, ...]:
    """By their names at the source: of what is there, else of the mirrors that the flow made."""
    if not flow.promoted:
        return ()
    if flow.source_cluster in world.names:
        router = world.router
        there = [one for one in world.names[flow.source_cluster] if router.name_there(flow.name, one)]
    else:
        there = [here for here, _ in standing_mirrors(world, observed, flow)]
    return tuple(sorted(topic for topic in there if world.carried.promoted(flow.name, topic)))


def kept_acls(world: ReplicationGraph, observed: Observed) -> Iterator[DesiredAcl]:
    """Who may read a mirror may go on reading it. What kept writers off goes: it is theirs now."""
    for _, flow in sorted(world.topology.flows.items()):
        there = observed.reachable(flow.destination_cluster)
        if there is None or (world.carried.running(flow.name) and not flow.promoted):
            continue
        made = {
            entry.address.name
            for entry in there.owned
            if entry.address.kind is Kind.ACL
            and entry.origin == f"flow.{flow.name}"
            and entry.topology == world.topology.name
        }
        mirrors = _promoted_mirrors(world, observed, flow) if made else []
        for rule in there.acls or ():
            if rule.name in made and not _keeps_off(rule) and any(_is_about(rule, one) for one in mirrors):
                origin = MirroredBy(flow.name, flow.source_cluster, rule.resource)
                yield DesiredAcl(rule, origin, flow.source)


def _promoted_mirrors(world: ReplicationGraph, observed: Observed, flow: Flow) -> list[str]:
    return [
        there
        for here, there in standing_mirrors(world, observed, flow, declared=True)
        if not world.carried.carries(flow.name, here)
    ]


def _keeps_off(rule: AclRule) -> bool:
    return rule.permission == "DENY" and rule.operation == "WRITE"


def _is_about(rule: AclRule, topic: str) -> bool:
    return topic.startswith(rule.resource) if rule.pattern == "PREFIXED" else topic == rule.resource
