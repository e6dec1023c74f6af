"""Drills: a topology is rebuilt on lab clusters, and its failovers are carried out there.

`rehearse` runs the standard drill. Each cluster that flows leave is lost, failed over, brought back and
failed back to, with the commands that an operator would type, while real clients write and read.
"""
