"""Mirrors planner/."""
