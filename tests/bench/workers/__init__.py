"""What a job on a standalone cluster of Spark with four Workers goes through, and how fast it copies there.

`stories` loses and restarts Workers and skews the load, `throughput` measures, `table` shows both. Nothing in
it is used by tests.
"""
