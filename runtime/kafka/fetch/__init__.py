"""This package fetches record batches, with incremental fetch sessions or with single fetches."""
