"""This package runs brokers as processes: their ports, settings, storage and security."""
