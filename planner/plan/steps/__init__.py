"""Pure: changes become ordered steps, the whole instruction for apply."""
