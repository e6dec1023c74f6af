"""This package submits the slots of a job to Spark, assigns partitions to them and reads their reports."""
