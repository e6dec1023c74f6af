"""Edge: executes a plan's steps, journalled, under a lease."""
