"""This package reads records with their origin, and a topic's clients: `repl read` and `repl clients`."""
