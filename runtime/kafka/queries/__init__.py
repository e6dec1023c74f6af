"""This package reads many partitions or groups, each part from the broker that has it."""
