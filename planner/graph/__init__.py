"""Pure: Topology + what the sources hold → Desired; what must be read for that; lints."""

from planner.graph.expansion import expand, lint_offline
from planner.graph.read_requests import ClusterReadRequest, ReadRequest, read_request_of

__all__ = ["ClusterReadRequest", "ReadRequest", "expand", "lint_offline", "read_request_of"]
