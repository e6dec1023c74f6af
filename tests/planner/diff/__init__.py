"""Mirrors planner/diff/."""
