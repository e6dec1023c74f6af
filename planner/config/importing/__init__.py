"""Converts the configuration of other tools to a topology, and notes what has no counterpart. It is pure.

A reader takes the files, each with its name and text, and the name of the topology. What all share is in
`document` (YAML and JSON as trees), `declared` (topics and ACLs) and `connect` (Kafka Connect's properties).
"""
