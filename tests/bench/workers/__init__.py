"""A job on a standalone cluster of Spark with four Workers, and how it grows with its slots.

`stories` loses and restarts Workers and skews the load, `shares` measures slots that have a share of a core,
`table` shows both. Nothing in it is used by tests.
"""
