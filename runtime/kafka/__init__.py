"""The Kafka client that the planner and the data path share, below both of them.

From the bottom: `protocol` (pure codecs) ← `connection` (one socket) ← `cluster` (brokers, leaders,
coordinators) ← `fetch`, `queries` and `transactions`. Whatever goes wrong leaves as one of `errors`.
It knows the contract and the batch alone: no flow, no plan, no Spark, no librdkafka.
"""
