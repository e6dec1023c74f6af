"""Pure: changes → ordered steps, guards, policies, fingerprints."""

from planner.plan.agreement.fingerprint import stale
from planner.plan.make import make_plan, with_diagnostics

__all__ = ["make_plan", "stale", "with_diagnostics"]
