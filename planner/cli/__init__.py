"""The command line: parse, wire the rooms together, exit."""

from planner.cli.app import main

__all__ = ["main"]
