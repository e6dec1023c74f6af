"""Edge, read-only: live clusters and jobs → Observed."""
