"""A MirrorMaker 2 configuration → the same flows, and a word on every key that has no counterpart."""

from planner.config.connect.notes import ConvertedTopology
from planner.config.mm2.read import convert

__all__ = ["ConvertedTopology", "convert"]
