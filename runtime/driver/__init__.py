"""This package holds the Spark application: the driver of one job and the entry point of its slots."""
