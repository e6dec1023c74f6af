"""The data path's own Kafka client: whole record batches over the wire, nothing copied in Python.

From the bottom: `protocol` (pure codecs) ← `connection` (one socket) ← `cluster` (brokers, leaders,
coordinators) ← `fetcher` and `transaction`. Whatever goes wrong leaves as one of `errors`.
"""
