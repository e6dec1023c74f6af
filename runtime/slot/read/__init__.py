"""The slot's source side: fetched batches, what of them is copied, and how much is held."""
