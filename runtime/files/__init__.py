"""File endpoints: a Spark task writes the records of partitions to staged files, and the driver commits them.

The manifest decides what is in an endpoint and where a partition resumes. See docs/internals/files.md.
"""
