"""Mirrors planner/state/."""
