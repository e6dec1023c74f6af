"""The slot: what one Spark task copies. Fetch, filter, stamp, produce, commit."""
