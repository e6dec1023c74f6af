"""The topology language: its keys, the shapes of their values, and the reader that applies them.

The JSON Schema and docs/topology.md are derived from the same definitions.
"""
