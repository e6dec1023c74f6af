"""Edge: executes a plan's steps under a lease and writes the journal. It decides nothing.

Each kind of step has its handler in `handlers`.
"""
