"""Pure: expands a topology over the live topics into the desired state of the clusters.

It also says what must be read for that, and checks the result (lints). It holds no Kafka client and no YAML.
"""

from planner.graph.expansion import expand, lint_offline, read_requests

__all__ = ["expand", "lint_offline", "read_requests"]
