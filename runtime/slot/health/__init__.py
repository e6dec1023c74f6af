"""The slot's supervision: inspecting, stopping and resuming partitions, and naming what blocks them."""
