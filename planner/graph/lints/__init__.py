"""Checks of a topology and its desired state: each lint has a code in docs/lints.md.

They return diagnostics and change nothing.
"""
