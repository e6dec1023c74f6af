"""Pure: Desired × Observed → changes."""

from planner.diff.differ import diff, diff_destroy
from planner.diff.drift import drift

__all__ = ["diff", "diff_destroy", "drift"]
