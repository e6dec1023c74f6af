"""Pure: makes a plan of its inputs: changes, ordered steps, guards and policies, and whether it is stale.

It reads nothing and executes nothing.
"""
