"""Edge, read-only: reads live clusters. Names first, then the details that a plan needs.

It changes nothing at a cluster; even the broker check only validates.
"""
