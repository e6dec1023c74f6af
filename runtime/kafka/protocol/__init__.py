"""This package encodes and decodes Kafka's requests and responses; it is pure: no socket, no clock.

A request knows its API and its supported versions, writes its body for the negotiated version, and reads the
response. Bodies are lists of buffers, so that record batches are sent from the caller's memory.
"""
