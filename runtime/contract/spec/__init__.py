"""This package holds the job spec and what follows from it: names, routes, topic settings.

It is pure.
"""
