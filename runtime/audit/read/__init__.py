"""`repl read` and `repl clients`: records with their origin, and who uses a topic."""
