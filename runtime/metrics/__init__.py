"""This package holds a job's metrics, its dashboards and its alert rules."""
