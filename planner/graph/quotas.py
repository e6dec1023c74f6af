"""The client quotas that the clusters should hold: declared, and mirrored with `quotas: {sync: true}`.

Quotas are mirrored by a plan alone, along chains of flows in one plan. A quota that a flow made is never
mirrored again: it would outlive the quota that it was made from. Where a flow ended or its source can't be
read, its quotas stay, and with them those that further flows made from them. An entity that has limits at the
destination without a flow keeps them: no flow overwrites or removes a quota that it did not make.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache

from planner.graph.cutovers import fence_limits
from planner.graph.messages import counted, few, flow_diagnostic
from planner.graph.replication_graph import ReplicationGraph
from planner.model.address import Kind
from planner.model.desired import Declared, DesiredQuota, MirroredBy
from planner.model.diagnostic import Diagnostic, error, note
from planner.model.observed import (
    FEATURE_QUOTAS,
    ObservedCluster,
    RegistryEntry,
)
from planner.model.topology import QUOTA_KEYS, Flow, QuotaEntity, Topology

Limits = Mapping[str, float]


def quotas_of(graph: ReplicationGraph) -> tuple[list[DesiredQuota], list[Diagnostic]]:
    """Returns the desired quotas of all clusters, with what can't be mirrored or set, and why."""
    diagnostics = list(_too_old(graph))
    lacking = {name for name, cluster in graph.observed.live.items() if cluster.lack(FEATURE_QUOTAS)}
    flows = [flow for flow in graph.flows if flow.quotas_sync and flow.runs and not set(flow.ends) & lacking]
    declared = (
        DesiredQuota(quota.cluster, quota.entity, quota.values, Declared(), quota.source)
        for quota in graph.topology.quotas
        if quota.cluster not in lacking
    )
    topology_quotas = _by_place(declared)
    ended, unread = _kept(flows, graph)
    unread = {place: quota for place, quota in unread.items() if place not in topology_quotas}
    mirrored = _mirrored(flows, ended, unread, graph, diagnostics)
    # The quotas of a flow whose source does not answer are unknown.
    kept = {
        place: quota
        for place, quota in unread.items()
        if isinstance(quota.origin, MirroredBy) and graph.cluster(quota.origin.source_cluster)
    }
    wanted = ended | mirrored | kept | topology_quotas
    wanted |= _by_place(fence_limits(graph, wanted))
    diagnostics += _without_secrets(graph)
    return sorted(wanted.values(), key=lambda quota: quota.address), diagnostics


def quotas_unknown(flow: Flow, graph: ReplicationGraph) -> str:
    """Returns why the quotas of a flow's clusters could not be read; "" if nothing is missing."""
    for name in flow.ends if flow.quotas_sync else ():
        cluster = graph.cluster(name)
        if cluster is not None and "quotas" in cluster.unreadable:
            return f"the client quotas of {name} could not be read: {cluster.unreadable['quotas']}"
    return ""


ClusterEntity = tuple[str, QuotaEntity]


def _by_place(quotas: Iterable[DesiredQuota]) -> dict[ClusterEntity, DesiredQuota]:
    return {(quota.cluster, quota.entity): quota for quota in quotas}


def _mirrored(
    flows: Sequence[Flow],
    ended: Collection[ClusterEntity],
    unread: Collection[ClusterEntity],
    graph: ReplicationGraph,
    diagnostics: list[Diagnostic],
) -> dict[ClusterEntity, DesiredQuota]:
    topology = graph.topology
    ends = sorted({end for flow in flows for end in flow.ends})
    limits = {name: _own_limits(graph.cluster(name), topology, name) for name in ends}
    mirrored: dict[ClusterEntity, DesiredQuota] = {}
    _spread(flows, limits, mirrored, unread)
    for name in ends:
        for entity, values in _left_over(graph.cluster(name), topology.name).items():
            if not any((name, entity) in places for places in (mirrored, ended, unread)):
                limits[name].setdefault(entity, values)
    _spread(flows, limits, mirrored, unread)
    for flow in flows:
        diagnostics += _others(flow, limits)
    return mirrored


def _spread(
    flows: Sequence[Flow],
    limits: Mapping[str, dict[QuotaEntity, Limits]],
    mirrored: dict[ClusterEntity, DesiredQuota],
    unread: Collection[ClusterEntity],
) -> None:
    """Adds to `limits` and `mirrored` what the flows mirror, until nothing is new."""
    fresh = True
    while fresh:
        fresh = False
        for flow in flows:
            there = limits[flow.destination_cluster]
            origin = MirroredBy(flow.name, flow.source_cluster)
            for entity, values in sorted(limits[flow.source_cluster].items(), key=lambda pair: pair[0].name):
                if entity not in there and values and (flow.destination_cluster, entity) not in unread:
                    there[entity] = values
                    made = DesiredQuota(flow.destination_cluster, entity, values, origin, flow.source)
                    mirrored[flow.destination_cluster, entity] = made
                    fresh = True


def _own_limits(cluster: ObservedCluster | None, topology: Topology, name: str) -> dict[QuotaEntity, Limits]:
    """Returns the limits of a cluster after this plan, without entities that have a quota of a flow.

    A quota of a flow that the topology declares now is the topology's own.
    """
    declared = {quota.entity: quota for quota in topology.quotas if quota.cluster == name}
    limits: dict[QuotaEntity, Limits] = {}
    entries = _entries(cluster)
    for name, live in cluster.quotas.items() if cluster is not None else ():
        entry, entity = entries.get(name), QuotaEntity.named(name)
        if entry is not None and (entry.flow is not None or entry.is_fence) and entity not in declared:
            continue
        gone = entry is not None and entry.topology == topology.name and (entry.created or entity in declared)
        if left := _less(live, entry if gone else None):
            limits[entity] = _known(left)
    return limits | {entity: {**limits.get(entity, {}), **quota.values} for entity, quota in declared.items()}


def _left_over(cluster: ObservedCluster | None, topology: str) -> dict[QuotaEntity, Limits]:
    """Returns the limits of entities with a quota of a flow, as they are once that quota is removed."""
    entries = _entries(cluster)
    limits: dict[QuotaEntity, Limits] = {}
    for name, live in cluster.quotas.items() if cluster is not None else ():
        entry, entity = entries.get(name), QuotaEntity.named(name)
        if entry is None or entry.topology != topology or entry.flow is None:
            continue
        if left := _less(live, entry if entry.created else None):
            limits[entity] = _known(left)
    return limits


def _entries(cluster: ObservedCluster | None) -> dict[str, RegistryEntry]:
    owned = cluster.owned if cluster is not None else ()
    return {entry.address.name: entry for entry in owned if entry.address.kind is Kind.QUOTA}


def _less(live: Limits, entry: RegistryEntry | None) -> Limits:
    """Returns the limits without those that were applied by this entry."""
    applied = entry.limits if entry is not None else {}
    return {key: value for key, value in live.items() if key not in applied}


def _known(values: Limits) -> Limits:
    """Returns the limits of Kafka. A vendor's own may mean nothing at another cluster."""
    return {key: values[key] for key in QUOTA_KEYS if key in values}


def _others(flow: Flow, limits: Mapping[str, Mapping[QuotaEntity, Limits]]) -> Iterator[Diagnostic]:
    """Yields a note on the quotas that are not mirrored, because the destination has others for the same."""
    there = limits[flow.destination_cluster]
    here = limits[flow.source_cluster]
    other = [entity.name for entity, values in here.items() if values and there.get(entity, values) != values]
    if other:
        yield flow_diagnostic(
            note,
            flow,
            f"not mirrored: {counted(other, 'quota')} of {flow.source_cluster}, because"
            f" {flow.destination_cluster} has other limits for the same",
            "to mirror it, delete the quota at the destination, or take it out of quotas",
            "quota-not-mirrored",
        )


def _kept(
    flows: Sequence[Flow], graph: ReplicationGraph
) -> tuple[dict[ClusterEntity, DesiredQuota], dict[ClusterEntity, DesiredQuota]]:
    """Returns the mirrored quotas that stay as they are: of ended flows, and of flows that can't be read.

    A flow that ended leaves its quotas: its clients are at the destination now. Those of a flow that runs
    stay while the quotas of its source can't be read.
    """
    syncing = [flow for _, flow in sorted(graph.topology.flows.items()) if flow.quotas_sync]
    running = [flow for flow in syncing if flow.runs]
    unread = [
        flow for flow in running if graph.cluster(flow.source_cluster) is None or quotas_unknown(flow, graph)
    ]
    made = cache(lambda name: _by_place(_made(graph.flow(name), graph)))
    ended = [flow for flow in syncing if not flow.runs]
    return _with_further(ended, flows, made), _with_further(unread, flows, made)


def _with_further(
    first: Iterable[Flow], flows: Sequence[Flow], made: Callable[[str], Mapping[ClusterEntity, DesiredQuota]]
) -> dict[ClusterEntity, DesiredQuota]:
    """Returns the quotas that the first flows made, and those that further flows made from them."""
    quotas = {place: quota for flow in first for place, quota in made(flow.name).items()}
    fresh = list(quotas)
    while fresh:
        cluster, entity = fresh.pop()
        for flow in flows:
            place = (flow.destination_cluster, entity)
            if flow.source_cluster == cluster and place not in quotas and place in made(flow.name):
                quotas[place] = made(flow.name)[place]
                fresh.append(place)
    return quotas


def _made(flow: Flow, graph: ReplicationGraph) -> Iterator[DesiredQuota]:
    """Yields the quotas that the flow made at its destination, as they are there."""
    destination = graph.cluster(flow.destination_cluster)
    origin = MirroredBy(flow.name, flow.source_cluster)
    for name, entry in _entries(destination).items():
        live = destination.quotas.get(name, {}) if destination is not None else {}
        values = {key: live[key] for key in entry.limits if key in live}
        if values and (entry.flow, entry.topology) == (flow.name, graph.topology.name):
            yield DesiredQuota(flow.destination_cluster, QuotaEntity.named(name), values, origin, flow.source)


def _too_old(graph: ReplicationGraph) -> Iterator[Diagnostic]:
    """Yields an error for each cluster and flow whose quotas the version of a broker can't do."""
    for name, cluster in sorted(graph.observed.live.items()):
        if (lacking := cluster.lack(FEATURE_QUOTAS)) is None:
            continue
        without = f"broker {lacking.broker} of {name} lacks {FEATURE_QUOTAS} (Kafka {lacking.since})"
        declared = [quota for quota in graph.topology.quotas if quota.cluster == name]
        if declared:
            named = few([str(quota.entity) for quota in declared])
            yield error(
                f"{without}: the quotas of {named} can't be set ({lacking.why})",
                f"upgrade {name} to Kafka {lacking.since} or newer, or take them out of quotas:"
                " until then kafka-configs.sh --zookeeper sets them",
                source=declared[0].source,
                code="version-required",
            )
        for flow in graph.flows:
            ends = flow.ends
            if flow.quotas_sync and name in ends and flow.runs:
                what = "read" if name == flow.source_cluster else "set"
                yield flow_diagnostic(
                    error,
                    flow,
                    f"{without}: quotas to mirror can't be {what} there ({lacking.why})",
                    f"upgrade {name} to Kafka {lacking.since} or newer, or set quotas: {{sync: false}}",
                    "version-required",
                )


def _without_secrets(graph: ReplicationGraph) -> Iterator[Diagnostic]:
    """Notes users who log in at the source of a flow and can't at its destination.

    A flow that mirrors rights or quotas prepares the destination for its source's clients.
    """
    for flow in graph.flows:
        source, destination = map(graph.cluster, flow.ends)
        if source is None or destination is None or not (flow.acls_sync or flow.quotas_sync):
            continue
        if not flow.runs or "scram" in {*source.unreadable, *destination.unreadable}:
            continue
        users = source.scram_users.keys() - destination.scram_users.keys()
        if users:
            yield flow_diagnostic(
                note,
                flow,
                f"no SCRAM secret at {destination.name}: {counted(users, 'SCRAM user')} of {source.name}",
                "each needs a new secret there: Kafka never returns secrets",
                "scram-users-missing",
            )
