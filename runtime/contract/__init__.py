"""This package holds the values and rules that planner and runtime share.

It is pure: it reads and writes nothing.
"""
