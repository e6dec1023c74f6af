"""This package supervises jobs by a process on this machine, which restarts, watches and stops them."""
