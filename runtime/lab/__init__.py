"""This package runs real Kafka clusters on this machine, for demos and tests."""
