"""Edge, read-only: reads live clusters. Names first, then the details that a plan needs.

It changes nothing at a cluster; even the broker check only validates.
"""

from planner.observe.cluster import ReadOptions
from planner.observe.observer import identities, named_topics, observe

__all__ = ["ReadOptions", "identities", "named_topics", "observe"]
