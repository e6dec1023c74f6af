"""Offsets of consumer groups, read at both sides of a flow and translated."""
