"""Mirrors the packages; brokers and Spark are real."""
