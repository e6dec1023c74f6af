"""Mirrors planner/render/."""
