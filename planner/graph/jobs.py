"""The desired flows, and the jobs that they name, each with its job spec. Secrets stay references.

A desired flow says what it takes now, and by which provenance filter.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from msgspec import structs

from planner.graph.acl_protection import job_principal
from planner.graph.replication_graph import CopyEdge, ReplicationGraph, ReplicationLoop
from planner.graph.routes import file_route, route_of, router_of
from planner.graph.topics import existing_mirrors
from planner.model.change import SENSITIVE
from planner.model.desired import DesiredFlow, DesiredJob
from planner.model.diagnostic import folder_of
from planner.model.observed import Observed
from planner.model.topology import (
    Cluster,
    FileEndpoint,
    Flow,
    Job,
    Registry,
    Topology,
    looks_secret,
)
from runtime.contract.client.secrets import secret_settings
from runtime.contract.client.stores import Setting
from runtime.contract.spec import jobspec
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.files import EndpointSpec, FilesSpec, LinesSpec, plain_folder
from runtime.contract.spec.flow import FlowSettings
from runtime.contract.spec.jobspec import FlowSpec, JobSpec, ProtectionSpec, ProvenanceMode
from runtime.contract.spec.launch import LaunchSpec
from runtime.contract.spec.route import CompiledRoute, Router
from runtime.contract.spec.schemas import RegistrySpec
from runtime.contract.spec.selection import SelectionResult
from runtime.contract.spec.transform import FormatSpec, TransformSpec


def flows_of(
    graph: ReplicationGraph,
    provenance: Mapping[str, ProvenanceMode],
    native_only: frozenset[str],
    loops: Sequence[ReplicationLoop],
) -> tuple[DesiredFlow, ...]:
    """Returns every flow with the topics that it selects now."""
    looping = {node for loop in loops for node in loop.nodes}
    into = graph.live.incoming
    readable = {flow.name for flow in graph.flows}
    unread = {flow.source_cluster for name, flow in graph.topology.flows.items() if name not in readable}

    def may_be_shared(edge: CopyEdge) -> bool:
        origins = graph.router.direct_origins(*edge.destination)
        return edge.destination in graph.silent.incoming or any(cluster in unread for cluster, _ in origins)

    desired = []
    for name, flow in sorted(graph.topology.flows.items()):
        edges = graph.live.by_flow.get(name, ())
        # Other flows or clients write the destination topic by design.
        shared = any(edge.destination in looping or len(into[edge.destination]) > 1 for edge in edges)
        selection_known = name in readable
        if flow.runs:
            topics = tuple((edge.source.topic, edge.destination.topic) for edge in edges)
        else:
            topics, selection_known = tuple(sorted(existing_mirrors(graph, flow))), True
        desired.append(
            DesiredFlow(
                flow=flow,
                topics=topics,
                hidden=tuple(sorted(graph.live.left_out.get((name, SelectionResult.DENIED), ()))),
                provenance=_filter(flow, provenance[name], native_only),
                provenance_reason=_reason(flow, provenance[name], native_only, loops),
                selection_known=selection_known,
                native_only=name in native_only,
                shared=shared or (None if unread and any(map(may_be_shared, edges)) else False),
                promoted=promoted_topics(graph, flow),
            )
        )
    for name, flow in graph.topology.job_flows.items():
        if name in graph.topology.file_flows:
            desired.append(DesiredFlow(flow=flow, topics=()) if flow.from_files else _into_files(flow, graph))
    return tuple(sorted(desired, key=lambda desired: desired.flow.name))


def topics_into_files(flow: Flow, graph: ReplicationGraph) -> list[str]:
    """Returns the topics that a flow into files selects now."""
    return [topic for topic, _ in _into_files(flow, graph).topics]


def _into_files(flow: Flow, graph: ReplicationGraph) -> DesiredFlow:
    """Returns a flow into files with the topics that it selects now: each stands for its own files."""
    route = CompiledRoute(file_route(graph.topology.file_flows[flow.name]))
    answers = {topic: route.answer(topic) for topic in sorted(graph.names.get(flow.source_cluster, ()))}
    return DesiredFlow(
        flow=flow,
        topics=tuple((topic, topic) for topic, answer in answers.items() if answer.taken),
        hidden=tuple(topic for topic, answer in answers.items() if answer is SelectionResult.DENIED),
        selection_known=flow.source_cluster in graph.names,
    )


def _filter(flow: Flow, chosen: ProvenanceMode, native_only: frozenset[str]) -> ProvenanceMode:
    """Returns the provenance filter that the job uses.

    A flow that copies only native records must recognise the other records. A reverse flow must recognise
    records that came from its destination. Batch provenance is enough for both.
    """
    knows = flow.name in native_only or flow.reverse_of is not None
    return "batch" if chosen == "off" and knows else chosen


def _reason(
    flow: Flow, chosen: ProvenanceMode, native_only: frozenset[str], loops: Sequence[ReplicationLoop]
) -> str:
    """Returns why `auto` chose this filter; "" if the topology names one."""
    if flow.provenance != "auto":
        return ""
    source, destination = flow.ends
    match chosen:
        case "off" | "batch" if flow.reverse_of is not None:
            return f"what came from {destination} is not copied back"
        case "off" if flow.name in native_only:
            return f"only records that were produced at {source} are copied"
        case "off":
            return f"no flow copies these topics back to {source}"
        case "batch":
            return f"{source} and {destination} copy topics to each other under one name"
        case "headers" if any(loop.longer and flow.name in loop.flows for loop in loops):
            return "records can loop over more than two clusters"
        case _:
            return "a flow of the same loop needs headers"


def promoted_topics(graph: ReplicationGraph, flow: Flow) -> tuple[str, ...]:
    """Returns the promoted topics of a flow, by their names at the source.

    If the source can't be read, the mirrors that the flow made tell them.
    """
    if not flow.promoted:
        return ()
    if flow.source_cluster in graph.names:
        router = graph.router
        topics_at_source = [
            topic for topic in graph.names[flow.source_cluster] if router.destination_topic(flow.name, topic)
        ]
    else:
        topics_at_source = [topic for topic, _ in existing_mirrors(graph, flow)]
    return tuple(sorted(topic for topic in topics_at_source if flow.has_promoted(topic)))


def jobs_of(
    topology: Topology, observed: Observed, flows: Sequence[DesiredFlow], folder: PurePath
) -> tuple[DesiredJob, ...]:
    """Returns every job that a flow names. A job that is not declared has the defaults.

    `folder` is where relative paths in the topology start: a job runs in another working folder.
    """
    by_job: dict[str, list[DesiredFlow]] = {}
    for desired in sorted(flows, key=lambda desired: desired.flow.name):
        by_job.setdefault(desired.flow.job, []).append(desired)
    router = router_of(topology)
    return tuple(
        DesiredJob(
            job=topology.job(name),
            flows=tuple(desired.flow.name for desired in job_flows),
            spec=_spec(topology.job(name), job_flows, topology, observed, router, folder),
            source=job_flows[0].flow.source,
        )
        for name, job_flows in sorted(by_job.items())
    )


def standby_spec(running: JobSpec, topology: Topology, folder: PurePath) -> JobSpec:
    """Returns the spec by which a standby starts a running job: its flows, on the clusters of this topology.

    The running spec comes from a record of the destination. No record decides which clusters, endpoints and
    registries are reached and how, or what Spark runs: that is the topology's. Raises KeyError for one that
    it does not declare.
    """
    job = topology.job(running.job)
    return structs.replace(
        running,
        clusters={
            name: _cluster(topology.clusters[name], Observed({}), running, folder)
            for name in sorted(running.clusters)
        },
        launch=launch_spec(job),
        metrics=job.metrics,
        flows=[
            _with_declared_registries(_with_declared_folder(flow, topology, folder), topology)
            for flow in running.flows
        ],
        registries=registries_of(topology, topology.flows.values(), folder),
    )


def _with_declared_folder(flow: FlowSpec, topology: Topology, base: PurePath) -> FlowSpec:
    """Returns a running flow with this topology's folder or store. Raises KeyError for another endpoint."""
    if flow.endpoint is None:
        return flow
    endpoint = topology.endpoints[flow.endpoint.endpoint]
    return flow.with_endpoint(
        folder=plain_folder(endpoint.folder),
        client=client_settings(endpoint, base),
        recursive=endpoint.recursive,
    )


def _with_declared_registries(flow: FlowSpec, topology: Topology) -> FlowSpec:
    """Returns a running flow whose transform asks this topology's registries, and no others.

    Raises KeyError where the topology declares none for it.
    """
    if flow.transform is None or not flow.transform.registries:
        return flow
    running, declared = flow.transform, topology.job_flows[flow.name].transform or TransformSpec()

    def with_declared(form: FormatSpec, ours: FormatSpec) -> FormatSpec:
        if form.registry is None:
            return form
        if ours.registry is None:
            raise KeyError(f"the registry of flow.{flow.name}")
        return structs.replace(form, registry=ours.registry)

    value = with_declared(running.value, declared.value)
    key = with_declared(running.key, declared.key)
    return structs.replace(flow, transform=structs.replace(running, value=value, key=key))


def destination_spec(cluster: Cluster, folder: PurePath) -> ClusterSpec:
    """Returns how a job reaches a cluster, as the topology declares it."""
    return _cluster(cluster, Observed({}), None, folder)


def _spec(
    job: Job,
    flows: Sequence[DesiredFlow],
    topology: Topology,
    observed: Observed,
    router: Router,
    folder: PurePath,
) -> JobSpec | None:
    """Returns the job spec; None if its flows have several destinations, which is an error elsewhere."""
    destination = flows[0].flow.destination_cluster
    names = sorted({destination, *(desired.flow.source_cluster for desired in flows)})
    if any(desired.flow.destination_cluster != destination for desired in flows):
        return None
    cluster = observed.reachable(destination)
    live = cluster.job(job.name) if cluster is not None else None
    before = live.spec if live is not None else None  # by which the job runs now
    return JobSpec(
        job=job.name,
        topology=topology.name,
        destination=destination,
        clusters={
            name: _cluster(topology.clusters[name], observed, before, folder)
            for name in names
            if name in topology.clusters
        },
        flows=[_flow(desired, topology, before, folder) for desired in flows],
        slots=0 if job.slots == "auto" else job.slots,
        launch=launch_spec(job),
        metrics=job.metrics,
        internal=topology.internal,
        routes=[compiled.route for compiled in router.routes.values()],
        declared=_declared(destination, flows, topology, router),
        protection=_protection(topology.clusters.get(destination), flows),
        registries=registries_of(topology, [desired.flow for desired in flows], folder),
    )


def registries_of(topology: Topology, flows: Iterable[Flow], folder: PurePath) -> dict[str, RegistrySpec]:
    """Returns the schema registries that the flows need, by cluster."""
    synced = [flow for flow in flows if flow.schemas.sync]
    names = {cluster for flow in synced for cluster in flow.ends}
    return registry_specs(topology, names, folder)


def registry_specs(topology: Topology, names: Collection[str], folder: PurePath) -> dict[str, RegistrySpec]:
    """Returns how the schema registries of these clusters are reached, of those that have one."""
    return {
        name: RegistrySpec(url=registry.url, client=client_settings(registry, folder))
        for name, registry in topology.registries.items()
        if name in names
    }


def _protection(destination: Cluster | None, flows: Iterable[DesiredFlow]) -> ProtectionSpec | None:
    """Returns what the job must know to protect the mirror topics that it creates."""
    principal = job_principal(destination) if destination is not None else None
    protects = any(desired.flow.protect == "acl" and desired.flow.runs for desired in flows)
    if destination is None or principal is None or not protects:
        return None
    return ProtectionSpec(principal=principal, open_without_rules=destination.allow_everyone_if_no_acl_found)


def launch_spec(job: Job) -> LaunchSpec:
    """Returns how the job is launched. A secret among its settings is masked, and the plan refuses it."""
    secrets = frozenset(secret_settings(job.conf))
    settings = {name: getattr(job, name) for name in LaunchSpec.__struct_fields__}
    conf = {key: SENSITIVE if key in secrets else value for key, value in sorted(job.conf.items())}
    return LaunchSpec(**settings | {"conf": conf})


def _cluster(cluster: Cluster, observed: Observed, before: JobSpec | None, folder: PurePath) -> ClusterSpec:
    """Returns how the job reaches a cluster, pinned to the cluster id that was seen.

    If the cluster does not answer, the id is the declared one or the one in the running job's spec.
    """
    live = observed.reachable(cluster.name)
    running = before.clusters.get(cluster.name) if before is not None else None
    pin = live.id if live is not None else cluster.id or (running.id if running is not None else None)
    return ClusterSpec(bootstrap=cluster.bootstrap, id=pin or None, client=client_settings(cluster, folder))


def client_settings(declared: Cluster | FileEndpoint | Registry, folder: PurePath) -> dict[str, Setting]:
    """Returns how a job reaches what is declared. A relative path starts at the YAML file."""
    place = folder_of(declared.source)
    settings: dict[str, Setting] = {}
    for key, value in sorted(declared.client.items()):
        match value:
            case {"file": str(name)} if not PurePath(name).is_absolute():
                settings[key] = {"file": f"{folder / place}{jobspec.FROM_HERE}{name}"}
            case str() if looks_secret(key):  # the plan refuses it
                settings[key] = SENSITIVE
            case _:
                settings[key] = value
    return settings


def _flow(desired: DesiredFlow, topology: Topology, before: JobSpec | None, folder: PurePath) -> FlowSpec:
    flow = desired.flow
    running = {spec.name: spec for spec in before.flows} if before is not None else {}
    # Where the source does not answer, values that depend on its topics stay as they were.
    running_spec = running.get(flow.name)
    resolved = desired if desired.selection_known else running_spec or desired
    shared = resolved.shared
    if shared is None:
        shared = running_spec is None or running_spec.shared
    route = route_of(flow, topology)
    settings = {name: getattr(flow, name) for name in FlowSettings.__struct_fields__}
    return FlowSpec(
        **settings | {"rename": route.rename},
        name=flow.name,
        source=flow.source_cluster,
        destination=flow.destination_cluster,
        topics=route.topics,
        provenance=resolved.provenance,
        native_only=resolved.native_only,
        shared=shared,
        files=files_spec(flow, topology, folder),
        lines=_lines(flow, topology, folder),
    )


def flow_spec(flow: Flow, topology: Topology, folder: PurePath) -> FlowSpec:
    """Returns a flow as its job would run it, as far as the topology alone tells."""
    return _flow(DesiredFlow(flow=flow, topics=()), topology, None, folder)


def files_spec(flow: Flow, topology: Topology, folder: PurePath) -> FilesSpec | None:
    """Returns where and how a flow writes files; None for another flow."""
    declared = topology.file_flows.get(flow.name)
    if declared is None or declared.from_files:
        return None
    return FilesSpec(**_endpoint(topology.endpoints[declared.destination_cluster], flow, folder))


def _lines(flow: Flow, topology: Topology, folder: PurePath) -> LinesSpec | None:
    """Returns where and how a flow reads files; None for another flow."""
    declared = topology.file_flows.get(flow.name)
    if declared is None or not declared.from_files:
        return None
    endpoint = _endpoint(topology.endpoints[declared.source_cluster], flow, folder)
    return LinesSpec(**endpoint, topic=declared.topics.to or "")


def _endpoint(endpoint: FileEndpoint, flow: Flow, folder: PurePath) -> dict[str, Any]:
    """Returns an endpoint as the job of a flow has it."""
    settings = {name: getattr(endpoint, name) for name in EndpointSpec.__struct_fields__}
    resolved = {"folder": plain_folder(endpoint.folder), "client": client_settings(endpoint, folder)}
    return settings | resolved | {"endpoint": endpoint.name, "every_ms": flow.interval_ms}


def _declared(
    destination: str, flows: Iterable[DesiredFlow], topology: Topology, router: Router
) -> dict[str, list[str]]:
    """Returns the settings that the topology declares for topics that one of the flows may fill."""
    # Flows into files fill no topic.
    routes = [router.routes[desired.flow.name] for desired in flows if desired.flow.name in router.routes]

    def may_be_filled(topic: str) -> bool:
        named = ((route, route.source_topic(topic)) for route in routes)
        return any(source is not None and route.answer(source).taken for route, source in named)

    return {
        topic.name: sorted(topic.config)
        for topic in sorted(topology.topics, key=lambda topic: topic.name)
        if topic.cluster == destination and topic.config and may_be_filled(topic.name)
    }
