"""Pure: expands a topology over the live topics into the desired state of the clusters.

It also says what must be read for that, and checks the result (lints). It holds no Kafka client and no YAML.
"""

from planner.graph.expansion import expand, lint_offline
from planner.graph.read_requests import ClusterReadRequest, ReadRequest, read_request_of

__all__ = ["ClusterReadRequest", "ReadRequest", "expand", "lint_offline", "read_request_of"]
