"""Edge: what outlives an apply: plan files, and the registry, lease and history in the clusters.

There is no state file beside them.
"""
