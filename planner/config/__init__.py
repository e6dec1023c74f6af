"""Edge: YAML files → Topology, strictly, with line numbers kept.

A file may hold several documents and a folder several files: all of them are one topology. Reading goes
text → nodes with places (parse) → one tree (merge) → expressions computed (variables) → values by the shapes
of the language (read) → defaults (inherit) → what must hold between the parts (checks) → Topology (build).
"""

from planner.config.load import LoadedTopology, in_order, load, load_with_warnings

__all__ = ["LoadedTopology", "in_order", "load", "load_with_warnings"]
