"""Edge: YAML files → Topology, strictly, with line numbers kept."""
