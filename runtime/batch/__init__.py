"""Pure: Kafka record batches as bytes: walk, filter, rewrite, stamp."""
