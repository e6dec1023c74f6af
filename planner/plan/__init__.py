"""Pure: makes a plan of its inputs: changes, ordered steps, guards and policies, and whether it is stale.

It reads nothing and executes nothing.
"""

from planner.plan.make import with_diagnostics
from planner.plan.staleness import stale

__all__ = ["stale", "with_diagnostics"]
