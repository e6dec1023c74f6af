"""Edits of a topology's YAML text: one key or one flow changes, and every other character stays."""
