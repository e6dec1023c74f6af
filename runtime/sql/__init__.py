"""This package evaluates the transform of a flow in Spark SQL, beside the slot and in the slot's task.

`query` and `check` run in the driver, `rows.feed` in the feeding worker, and the rest in the slot. It knows
no Kafka client: it takes record batches and returns record batches.
"""
