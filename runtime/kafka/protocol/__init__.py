"""Kafka's requests and responses as values and bytes; pure: no socket, no clock.

A request knows its API and the versions it can speak, writes its body for the version that was negotiated,
and reads the response's. Bodies are lists of buffers, so that record batches travel as the caller's memory.
"""
