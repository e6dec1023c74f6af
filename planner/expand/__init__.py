"""Pure: Topology + what the sources hold → Desired; what must be read for that; lints."""

from planner.expand.expand import expand, lint_offline
from planner.expand.wants import ClusterReadRequest, ReadRequest, wants

__all__ = ["ClusterReadRequest", "ReadRequest", "expand", "lint_offline", "wants"]
