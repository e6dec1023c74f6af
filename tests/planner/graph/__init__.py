"""Expand and lint, as tables."""
