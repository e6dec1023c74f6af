"""Topology → plan: observe the clusters, expand, compare, and check the plan with the brokers."""
