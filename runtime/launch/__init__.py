"""Starts, stops and finds jobs, by their launchers."""
