"""Edge: executes a plan's steps, journalled, under a lease. The plan decided, this only does."""

from planner.apply.executor import execute
from planner.model.outcome import ApplySummary, Result, StepOutcome, StepsEnded, StepsSent

__all__ = ["ApplySummary", "Result", "StepOutcome", "StepsEnded", "StepsSent", "execute"]
