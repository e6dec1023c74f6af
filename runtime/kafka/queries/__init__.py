"""Questions about many partitions or groups: each part goes to the broker that knows the answer."""
