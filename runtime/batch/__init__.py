"""Kafka record batches as bytes: parse, filter, rewrite, stamp. Bytes in, bytes out; see docs/batch.md."""

from runtime.batch.aborted import AbortedTransactions, marker_type
from runtime.batch.failure import BatchFailure, CorruptBatch, TooLarge, Where
from runtime.batch.layout import Batch, Codec, LegacySet, RecordSet
from runtime.batch.stamp import Stamped, next_sequence, stamp
from runtime.batch.walk import Walked, walk

__all__ = [
    "AbortedTransactions",
    "Batch",
    "BatchFailure",
    "Codec",
    "CorruptBatch",
    "LegacySet",
    "RecordSet",
    "Stamped",
    "TooLarge",
    "Walked",
    "Where",
    "marker_type",
    "next_sequence",
    "stamp",
    "walk",
]
