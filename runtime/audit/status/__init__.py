"""This package inspects every cluster and derives the status of jobs and flows: `repl status`."""
