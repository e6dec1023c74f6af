"""This package holds the duties of a driver beside copying.

They are heartbeats, commits at the origin, ACL sync and consumer-group sync.
"""
