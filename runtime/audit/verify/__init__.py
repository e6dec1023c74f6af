"""`repl verify`: both sides compared record by record, on Spark."""
