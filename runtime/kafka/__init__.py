"""The Kafka client that the planner and the data path share, below both of them.

It knows the contract and nothing else of the product: no flow, no plan, no Spark, no librdkafka.
"""
