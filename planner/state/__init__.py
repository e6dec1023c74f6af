"""Edge: the plan file; registry and history, kept in the clusters."""
