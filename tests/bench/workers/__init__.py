"""A job on a standalone cluster of Spark with a Worker on each machine, and how it grows with its slots.

`stories` loses and restarts Workers and skews the load, `scale` measures slots that `limits` binds, `table`
shows both. Nothing in it is used by tests.
"""
