"""Edge: executes a plan's steps, journalled, under a lease. The plan decided, this only does."""

from planner.apply.executor import execute
from planner.model.outcome import Ended, Outcome, Result, Sent, Summary

__all__ = ["Ended", "Outcome", "Result", "Sent", "Summary", "execute"]
