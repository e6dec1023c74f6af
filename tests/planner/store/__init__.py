"""Mirrors planner/store/."""
