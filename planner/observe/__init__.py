"""Edge, read-only: live clusters → Observed. Names first, then the details that a plan asks for."""

from planner.observe.named import named_topics
from planner.observe.observer import TIMEOUT_S, Observer
from planner.observe.progress import ProgressCallback

__all__ = ["TIMEOUT_S", "Observer", "ProgressCallback", "named_topics"]
