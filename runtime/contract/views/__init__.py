"""What the audit commands found, as values that are shown and nothing else. Pure."""
