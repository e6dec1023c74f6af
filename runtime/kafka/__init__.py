"""This package is the Kafka client that the planner and the data path share; it is below both of them.

From the bottom: `protocol` (pure codecs) ← `connection` (one socket) ← `cluster` (brokers, leaders,
coordinators) ← `fetch`, `queries` and `transactions`. Every failure leaves it as one of `errors`. It imports
the contract and the batch only: no flow, no plan, no Spark, no librdkafka.
"""
