"""Simulated brokers and what is measured against them: real processes that speak Kafka's protocol over TCP.

They hold topics and groups that follow from a few numbers, and real logs of the internal topics. They hold
no records of other topics, and no Spark runs.
"""
