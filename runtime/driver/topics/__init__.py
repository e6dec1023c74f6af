"""Mirror topics at the destination: found, made, grown, and kept like their sources."""
