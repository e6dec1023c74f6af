"""Holds the script alone: a script finds what lies beside it under top-level names."""
