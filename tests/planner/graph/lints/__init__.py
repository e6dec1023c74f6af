"""Each lint: what is found, where, and what is not."""
