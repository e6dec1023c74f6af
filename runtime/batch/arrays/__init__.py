"""This package handles many records at once with numpy, for small batches and headers provenance.

Irregular input is left to `runtime.batch.splice`, which handles records one by one.
"""
