"""Starts, stops and looks after jobs."""
