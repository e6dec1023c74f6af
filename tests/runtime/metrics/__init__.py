"""Metrics, dashboards and alert rules."""
