"""This package holds versioned codecs for the records of the internal topics, and the arithmetic of progress.

It is pure: it reads and writes nothing.
"""
