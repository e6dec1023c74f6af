"""Writes records again at an operator's request, on Spark: `repl salvage --replay` and `repl restore`."""
