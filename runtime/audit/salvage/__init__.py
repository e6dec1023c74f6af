"""This package lists records that never reached the destination: `repl salvage`."""
