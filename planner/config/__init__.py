"""Edge: reads YAML files into a Topology, strictly, and keeps line numbers for errors.

A file may hold several documents and a folder several files: all of them are one topology. The stages are
text → nodes with places (yaml_tree) → one tree (load) → expressions computed (variables) → values by the
shapes of the language (language.reader) → defaults (language.build) → checks between the parts
(validation) → Topology (language.build). The keys are declared in planner.model.topology and nowhere else.
"""

from planner.config.load import LoadedTopology, in_order, load, load_with_warnings

__all__ = ["LoadedTopology", "in_order", "load", "load_with_warnings"]
