"""This package copies orphaned records again on an operator's request: `repl salvage --replay`, on Spark."""
