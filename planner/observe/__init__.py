"""Edge, read-only: reads live clusters. Names first, then the details that a plan needs.

It changes nothing at a cluster; even the broker check only validates.
"""

from planner.observe.cluster import ProgressCallback
from planner.observe.observer import TIMEOUT_S, Observer, named_topics

__all__ = ["TIMEOUT_S", "Observer", "ProgressCallback", "named_topics"]
