"""What a driver does beside copying: heartbeats, origin commits, group sync."""
