"""`repl doctor`: what a live cluster can do for flows."""

from planner.config import load
from planner.kafka.errors import WireFailure
from planner.model.diagnostic import Failure, error
from planner.model.observed import ClusterReport
from planner.observe.doctor import examine
from planner.workflows.audit.reading import ClusterRequest
from planner.workflows.clusters import endpoints_of
from planner.workflows.topology import cluster_of


def doctor(request: ClusterRequest) -> ClusterReport:
    """Examines a cluster; nothing is changed. Raises Failure where no broker answers."""
    known = cluster_of(load(request.path, request.var_files), request.cluster)
    try:
        return examine(endpoints_of([known])[request.cluster], request.timeout_ms / 1000)
    except WireFailure as failure:
        raise Failure(error(f"{request.cluster}: {failure.why}", failure.way_out)) from None
