"""What the ledger and the clusters can answer, read-only: status, verify, read, offsets, salvage."""
