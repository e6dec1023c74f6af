"""Pure: Topology + what the sources hold → Desired; what must be read for that; lints."""

from planner.expand.expand import expand, lint_offline
from planner.expand.wants import ClusterWants, Wants, wants

__all__ = ["ClusterWants", "Wants", "expand", "lint_offline", "wants"]
