"""Lints of flows into files, from the topology alone: what a job can run, and what is written twice."""

from collections.abc import Iterator

from planner.model.address import flow_address, job_address
from planner.model.diagnostic import Diagnostic, error, warning
from planner.model.topology import Flow, Topology


def endpoints(topology: Topology) -> Iterator[Diagnostic]:
    """Yields the lints of all endpoints and of the flows that go to them."""
    flows = [flow for _, flow in sorted(topology.file_flows.items())]
    used = {flow.destination_cluster for flow in flows}
    for name, endpoint in sorted(topology.endpoints.items()):
        if name not in used:
            yield warning(
                f"no flow goes to the endpoint {name}",
                "name it in the to of a flow, or remove it",
                source=endpoint.source,
                code="unused-endpoint",
            )
    yield from _jobs(topology, flows)
    yield from _twice(flows)


def _jobs(topology: Topology, flows: list[Flow]) -> Iterator[Diagnostic]:
    """Yields an error for a job that can't have a home, or that has slots for another kind of flow."""
    first: dict[str, Flow] = {}
    others = {flow.job: name for name, flow in sorted(topology.flows.items())}
    for flow in flows:
        home = first.setdefault(flow.job, flow)
        if flow.job in others:
            yield error(
                f"job {flow.job} would run flow.{flow.name} into files, and flow.{others[flow.job]} into a"
                " cluster",
                f"give flow.{flow.name} a job of its own: job: {flow.destination_cluster}-files",
                address=str(job_address(flow.job)),
                source=flow.source,
                code="job-of-files",
            )
        elif home.source_cluster != flow.source_cluster:
            yield error(
                f"job {flow.job} would write files from {home.source_cluster} (flow.{home.name}) and from"
                f" {flow.source_cluster} (flow.{flow.name}): its internal topics are at one cluster",
                f"give flow.{flow.name} another job: job: {flow.destination_cluster}-{flow.source_cluster}",
                address=str(job_address(flow.job)),
                source=flow.source,
                code="job-of-files",
            )


def _twice(flows: list[Flow]) -> Iterator[Diagnostic]:
    """Warns of two flows that write the same topic of the same cluster to one endpoint."""
    first: dict[tuple[str, str, str], str] = {}
    for flow in flows:
        for pattern in flow.topics.include:
            key = flow.destination_cluster, flow.source_cluster, pattern
            other = first.setdefault(key, flow.name)
            if other != flow.name:
                yield warning(
                    f"flow.{other} and flow.{flow.name} both write {pattern} of {flow.source_cluster} to"
                    f" {flow.destination_cluster}: a reader of the folder sees its records twice",
                    "let one of them take it, or give one an endpoint of its own",
                    address=str(flow_address(flow.name)),
                    source=flow.source,
                    code="written-twice",
                )
