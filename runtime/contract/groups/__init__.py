"""This package decides which consumer groups are synced, and where they continue at the destination.

It is pure.
"""
