"""Lints of transforms: where raw values are read and go, and what a failback does.

Also what filters leave of keys in compacted topics, and the names of quarantine topics.
"""

import re
from collections.abc import Iterator, Sequence

from planner.graph.jobs import topics_into_files
from planner.graph.messages import counted, flow_diagnostic, flow_refused
from planner.graph.replication_graph import CopyEdge, ReplicationGraph, TopicNode
from planner.graph.topics import DesiredTopics, quarantine_nodes
from planner.model.address import job_address
from planner.model.diagnostic import Diagnostic, error, warning
from planner.model.topology import Flow, Topology
from runtime.contract.spec.naming import illegal_because

_LOCAL = re.compile(r"local\[(\d+)(?:,\d+)?\]")


def transforms(topology: Topology) -> Iterator[Diagnostic]:
    """Yields the lints of all flows with a transform, and of the jobs that run them."""
    for flow in sorted(topology.flows.values(), key=lambda declared: declared.name):
        original = topology.flows.get(flow.reverse_of) if flow.reverse_of is not None else None
        if original is not None and changed_fields_of(original):
            yield _lossy_failback(flow, original)
        if flow.job == flow.destination_cluster and changed_fields_of(flow):
            yield _job_at_destination(flow)
        if (
            flow.quarantines
            and flow.transform is not None
            and (changed_fields_of(flow) or flow.transform.where)
        ):
            yield _raw_quarantine(flow)
    yield from _too_few_slots(topology)


def changed_fields_of(flow: Flow) -> tuple[str, ...]:
    """Returns the fields that the destination does not have as the source has them."""
    transform = flow.transform
    return (*sorted(transform.set), *transform.drop) if transform is not None else ()


def _lossy_failback(flow: Flow, original: Flow) -> Diagnostic:
    fields = ", ".join(changed_fields_of(original))
    return flow_refused(
        flow,
        f"flow.{flow.name} reverses {original.name}, which sets or drops {fields}:"
        f" {original.source_cluster} would get records without the values that it had",
        f"remove flow.{flow.name} and go on at {original.destination_cluster}, or write at"
        f" {original.source_cluster} again from its own data",
        "failback-lossy",
    )


def _job_at_destination(flow: Flow) -> Diagnostic:
    fields = ", ".join(changed_fields_of(flow))
    return flow_diagnostic(
        warning,
        flow,
        f"job {flow.job} has the name of {flow.destination_cluster}: where it runs, it reads {fields} as they"
        f" are at {flow.source_cluster}, so raw values cross the border",
        f"run the job at {flow.source_cluster}, and give it a name of its own that says so: job: NAME",
        "raw-values-cross",
    )


def _raw_quarantine(flow: Flow) -> Diagnostic:
    transform = flow.transform
    assert transform is not None
    hidden = [f"{', '.join(changed_fields_of(flow))} as they are"] if changed_fields_of(flow) else []
    hidden += ["what where leaves out"] if transform.where else []
    return flow_diagnostic(
        warning,
        flow,
        f"flow.{flow.name} quarantines bad records as they came, at {flow.destination_cluster}: with them"
        f" {' and '.join(hidden)} may cross the border",
        f"write on_bad_record: stop, or let only those read the quarantine topics at"
        f" {flow.destination_cluster} who may read {flow.source_cluster}",
        "raw-values-quarantined",
    )


def filtered_keys(graph: ReplicationGraph, topics: DesiredTopics) -> Iterator[Diagnostic]:
    """Warns of filters that leave older records of a key, and of tombstones that nothing compacts.

    Of a topic that a flow into files reads, the settings are there only if something else reads them too.
    """
    flows = {**graph.topology.flows, **graph.topology.file_flows}
    for name, flow in sorted(flows.items()):
        if flow.transform is None or flow.transform.where is None:
            continue
        if name in graph.topology.file_flows:
            nodes = [TopicNode(flow.source_cluster, topic) for topic in topics_into_files(flow, graph)]
        else:
            nodes = [edge.destination for edge in graph.live.by_flow.get(name, ())]
        policies = {
            node: settings.effective("cleanup.policy")
            for node in nodes
            if (settings := topics.settings.get(node)) is not None
        }
        deletes = flow.transform.on_filtered == "tombstone"
        unfit = [
            node.topic
            for node, policy in policies.items()
            if policy is not None and ("compact" in policy) is not deletes
        ]
        if unfit and deletes:
            yield _uncompacted_tombstones(flow, unfit)
        elif unfit and flow.transform.on_filtered is None:
            yield _stale_keys(flow, unfit)


def _stale_keys(flow: Flow, compacted: Sequence[str]) -> Diagnostic:
    return flow_diagnostic(
        warning,
        flow,
        f"flow.{flow.name} filters {counted(compacted)}, compacted: where the newest record of a key is left"
        f" out, the key's older record stays the last one at {flow.destination_cluster}",
        "write on_filtered: tombstone to copy a tombstone in its place, which removes the key there. The keys"
        f" of all filtered records then arrive at {flow.destination_cluster}, and keys can be personal data."
        " Write on_filtered: skip to keep the older records",
        "stale-keys",
    )


def _uncompacted_tombstones(flow: Flow, others: Sequence[str]) -> Diagnostic:
    are = "is" if len(set(others)) == 1 else "are"
    return flow_diagnostic(
        warning,
        flow,
        f"flow.{flow.name} copies a tombstone for each record that where leaves out, and"
        f" {counted(others)} {are} not compacted: nothing is removed there, and consumers read null values",
        "write on_filtered: skip, or cleanup.policy: compact for the topic",
        "tombstones-not-compacted",
    )


def quarantine_names(graph: ReplicationGraph, edges: Sequence[CopyEdge]) -> Iterator[Diagnostic]:
    """Yields an error for a quarantine topic that Kafka refuses, or that a flow copies records into."""
    copied = {edge.destination: edge for edge in edges}
    for node, edge in sorted(quarantine_nodes(graph, edges).items()):
        flow = graph.flow(edge.flow)
        if why := illegal_because(node.topic):
            yield flow_diagnostic(
                error,
                flow,
                f"the quarantine topic of {edge.destination} would get an illegal name: {why}",
                "change rename, exclude the topic, or write on_bad_record: stop",
                "quarantine-name",
            )
        elif (other := copied.get(node)) is not None:
            yield flow_diagnostic(
                error,
                flow,
                f"{node} is the quarantine topic of {edge.destination}, and flow.{other.flow} copies"
                f" {other.source} into it",
                f"exclude {other.source.topic} in flow.{other.flow}, or rename it there",
                "quarantine-name",
            )


def _too_few_slots(topology: Topology) -> Iterator[Diagnostic]:
    """Warns of a job that has fewer slots than its transforms need: one for each, one for all other flows."""
    for job in sorted(topology.jobs.values(), key=lambda declared: declared.name):
        flows = [flow for flow in topology.flows.values() if flow.job == job.name]
        with_transform = sum(flow.transform is not None for flow in flows)
        needed = with_transform + (with_transform < len(flows))
        local = _LOCAL.fullmatch(job.master)
        cores = int(local[1]) if local else None
        if with_transform and cores is not None and cores < needed:
            yield warning(
                f"job {job.name} needs {needed} slots, one for each flow with a transform and one for all"
                f" other flows, and {job.master} has {cores}: a flow waits for a core",
                f"write master: local[{needed}]",
                address=str(job_address(job.name)),
                source=job.source,
                code="transform-slots",
            )
