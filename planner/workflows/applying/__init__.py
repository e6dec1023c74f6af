"""Plan → clusters: the lease, the check that the plan still holds, the journal, and the steps."""
