"""YAML text becomes a tree of nodes with their places, within limits that stop bombs early.

Nothing is interpreted here: no schema, no default, no variable.
"""
