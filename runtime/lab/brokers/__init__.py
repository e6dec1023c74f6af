"""Brokers as processes: their ports, settings, storage and security."""
