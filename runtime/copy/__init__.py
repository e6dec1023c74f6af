"""The slot: fetch, produce, transact, write the ledger."""
