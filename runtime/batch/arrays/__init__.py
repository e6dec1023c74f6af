"""Many records at once, with numpy: the hot ways of small batches and of headers provenance.

What is not regular is left to `runtime.batch.splice`, which goes record by record.
"""
