"""Partitions that do not move, or are not what they should be: looked at, named, continued."""
