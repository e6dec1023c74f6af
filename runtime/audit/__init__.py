"""This package reads the ledger and the clusters and never writes: status, verify, read, offsets, salvage."""
