"""What the ledger can answer: verify, salvage, locate."""
