"""Edge: executes a plan's steps under a lease and writes the journal. It decides nothing.

Each kind of step has its handler in `handlers`.
"""

from planner.apply.executor import execute
from planner.model.step import ApplySummary, Result, StepOutcome, StepsEnded, StepsSent

__all__ = ["ApplySummary", "Result", "StepOutcome", "StepsEnded", "StepsSent", "execute"]
