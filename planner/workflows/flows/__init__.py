"""Changes of flows: a state is edited, planned, approved, written and applied; a backup is restored."""
