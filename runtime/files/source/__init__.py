"""Flows from files: what is in the folder, which files were read before, and their lines or rows as records.

The ledger decides how far each file was read. Nothing here writes files. See docs/internals/files.md.
"""
