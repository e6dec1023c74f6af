"""A slot is the process of one Spark task; it fetches, filters, stamps, produces and commits batches."""
