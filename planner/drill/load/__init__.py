"""The records that a drill writes: numbered ones, ones that fit a declared format, or recorded samples.

Everything here is pure but the reading of sample files. It knows topics and formats, and no client.
"""
