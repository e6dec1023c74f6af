"""Confluent Replicator's connectors → the same flows, and a note on every key without a counterpart.

`connectors` reads the JSON, `flows` converts one connector, and `read` joins them to a topology.
"""

from planner.config.connect.notes import ConvertedTopology
from planner.config.replicator.read import convert

__all__ = ["ConvertedTopology", "convert"]
