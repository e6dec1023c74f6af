"""This package holds the flows of a job in the driver.

It covers their life cycle: takeover, following topics, edits, promotion, failover and failback. Slots and
topic administration live in the packages beside it.
"""
