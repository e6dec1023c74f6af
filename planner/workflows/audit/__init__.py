"""Questions to clusters and ledgers: status, offsets, records, salvage and verification."""
