"""This package holds the job spec and what follows from it: names, routes, mirror settings, assignments.

It is pure.
"""
