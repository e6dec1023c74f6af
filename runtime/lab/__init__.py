"""Real Kafka clusters on this machine, for demos and tests."""
