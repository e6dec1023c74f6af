"""Pure: Desired × Observed → changes."""
