"""Pure: makes a plan of its inputs: changes, ordered steps, guards, policies and fingerprints.

It reads nothing and executes nothing.
"""

from planner.plan.fingerprint import stale
from planner.plan.make import with_diagnostics

__all__ = ["stale", "with_diagnostics"]
