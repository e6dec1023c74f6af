"""Mirrors planner/plan/."""
