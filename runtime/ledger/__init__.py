"""The ledger at a destination: internal topics, offset maps, checkpoints, start positions."""
