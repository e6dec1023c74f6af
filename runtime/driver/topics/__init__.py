"""This package creates mirror topics at the destination, and keeps their settings and partition counts.

Both follow the source topics.
"""
