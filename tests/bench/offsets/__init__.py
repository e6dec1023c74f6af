"""Offset translation against MirrorMaker 2, on one lab with the same commits: `make bench-offsets`.

`pattern` is what is written and committed; `sides` start the two; `count` reads what a consumer
that goes on at the destination would read: what of it the group had read already, and what it never
would see.
"""
