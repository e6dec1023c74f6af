"""Pure: turns changes into ordered steps, the whole instruction for apply."""
