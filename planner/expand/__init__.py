"""Pure: Topology and what the sources hold → Desired, with lints."""
