"""The transform of a flow: Spark SQL over record batches."""
