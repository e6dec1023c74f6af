"""This package compares both sides of a flow record by record, on Spark: `repl verify`."""
