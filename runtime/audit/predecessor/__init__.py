"""Reads how far the tool that a flow replaces has copied, and whether it still runs.

`connect_offsets` reads the offsets topic of Kafka Connect, and `progress` joins what both clusters tell.
"""
