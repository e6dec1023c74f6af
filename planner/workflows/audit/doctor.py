"""`repl doctor`: what a live cluster can do for flows."""

from planner.config import load
from planner.kafka.connections import WireFailure
from planner.model.cluster_report import ClusterReport
from planner.model.diagnostic import Failure, error
from planner.observe.doctor import examine
from planner.workflows.audit.reading import ClusterRequest
from planner.workflows.clusters import endpoints_of
from planner.workflows.topology import cluster_of


def doctor(request: ClusterRequest) -> ClusterReport:
    """Examines a cluster; nothing is changed. Raises Failure where no broker answers."""
    topology = load(request.path, request.var_files)
    known = cluster_of(topology, request.cluster)
    try:
        return examine(endpoints_of([known])[request.cluster], request.timeout_ms / 1000, topology)
    except WireFailure as failure:
        raise Failure(error(f"{request.cluster}: {failure.why}", failure.way_out)) from None
