"""Pure: turns changes into a plan: ordered steps, guards, policies and fingerprints.

It reads nothing and executes nothing.
"""

from planner.plan.fingerprint import stale
from planner.plan.make import make_plan, with_diagnostics

__all__ = ["make_plan", "stale", "with_diagnostics"]
