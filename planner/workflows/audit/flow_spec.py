"""A declared flow → what its job is told of it: provenance resolved, clusters pinned, no secret."""

from planner.model.diagnostic import Failure, error
from planner.model.observed import Unreachable
from planner.model.topology import Flow, Topology
from planner.workflows.planning.plans import see
from runtime.contract.spec.jobspec import ClusterSpec, FlowSpec, JobSpec


def flow_spec(topology: Topology, flow: Flow, timeout_ms: int) -> tuple[FlowSpec, dict[str, ClusterSpec]]:
    """Both clusters must answer. Failure says which does not."""
    job = job_spec(topology, flow, timeout_ms)
    return job.flow(flow.name), job.clusters


def job_spec(topology: Topology, flow: Flow, timeout_ms: int) -> JobSpec:
    """The whole job's, of which the flow is one."""
    seen = see(topology, timeout_ms)
    for name in (flow.source_cluster, flow.destination_cluster):
        match seen.observed.clusters[name]:
            case Unreachable(why=why, way_out=way_out):
                raise Failure(error(f"{name} can't be read, and both sides are needed: {why}", way_out))
    for job in seen.desired.jobs:
        if job.spec is not None and flow.name in job.flows:
            return job.spec
    raise Failure(error(f"the job of {flow.name} can't be made", "repl validate says why"))
