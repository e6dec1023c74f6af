"""Edge, read-only: live clusters → Observed. Names first, then the details that a plan asks for."""

from planner.observe.cluster import ProgressCallback
from planner.observe.observer import TIMEOUT_S, Observer, named_topics

__all__ = ["TIMEOUT_S", "Observer", "ProgressCallback", "named_topics"]
