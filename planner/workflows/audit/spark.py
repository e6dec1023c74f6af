"""The spec of a flow's job, from which a one-off Spark application of the audit starts."""

from planner.model.diagnostic import Failure, error
from planner.model.observed import Unreachable
from planner.model.topology import Flow, Topology
from planner.workflows.interaction import ProgressHandler
from planner.workflows.planning.plans import see
from runtime.contract.spec.jobspec import JobSpec


def job_spec(topology: Topology, flow: Flow, timeout_ms: int, progress: ProgressHandler) -> JobSpec:
    """Returns the spec of the flow's job: provenance resolved, clusters pinned, no secret.

    Both clusters of the flow must answer. Failure names the one that does not.
    """
    seen = see(topology, timeout_ms, progress=progress)
    for name in (flow.source_cluster, flow.destination_cluster):
        match seen.observed.clusters[name]:
            case Unreachable(why=why, way_out=way_out):
                raise Failure(error(f"{name} can't be read, and both sides are needed: {why}", way_out))
    for job in seen.desired.jobs:
        if job.spec is not None and flow.name in job.flows:
            return job.spec
    raise Failure(error(f"the job of {flow.name} can't be made", "repl validate says why"))
