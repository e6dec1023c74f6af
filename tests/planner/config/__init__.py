"""YAML in, a Topology or every mistake out."""
