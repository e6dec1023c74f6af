"""The ledger reads and writes the internal topics of a destination: progress, offset maps, checkpoints."""
