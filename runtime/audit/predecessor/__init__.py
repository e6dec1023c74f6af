"""Reads how far the tool that a flow replaces has copied, and whether it still runs.

`progress` reads the tool's positions at both clusters, and `alignment` finds the end of a mirror by content.
"""
