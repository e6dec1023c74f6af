"""Consumer groups: which are synced, and where they continue at the destination. Pure."""
