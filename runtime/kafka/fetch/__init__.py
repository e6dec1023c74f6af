"""Fetching of record batches: incremental fetch sessions, and single fetches outside a session."""
