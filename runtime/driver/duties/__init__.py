"""This package holds the duties of a driver beside copying: heartbeats, origin commits and consumer-group
sync.
"""
