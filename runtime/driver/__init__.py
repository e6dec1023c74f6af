"""The Spark application: one job's driver."""
