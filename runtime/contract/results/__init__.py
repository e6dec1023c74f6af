"""This package holds the results of the audit commands as values that are only shown. It is pure."""
