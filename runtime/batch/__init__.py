"""Kafka record batches as bytes: parse, filter, rewrite, stamp. Bytes in, bytes out; see docs/batch.md."""

from runtime.batch.aborted import AbortedTransactions, marker_type
from runtime.batch.failure import BatchFailure, CorruptBatch, TooLarge, Where
from runtime.batch.layout import Batch, Codec, LegacySet, RecordSet
from runtime.batch.prepare import needs_rewrite, prepare
from runtime.batch.record import Record, records
from runtime.batch.spec import Merge, Outgoing, Prepared, Reason, RewriteSpec, Segment
from runtime.batch.stamp import Stamped, next_sequence, stamp
from runtime.batch.walk import Walked, walk

__all__ = [
    "AbortedTransactions",
    "Batch",
    "BatchFailure",
    "Codec",
    "CorruptBatch",
    "LegacySet",
    "Merge",
    "Outgoing",
    "Prepared",
    "Reason",
    "Record",
    "RecordSet",
    "RewriteSpec",
    "Segment",
    "Stamped",
    "TooLarge",
    "Walked",
    "Where",
    "marker_type",
    "needs_rewrite",
    "next_sequence",
    "prepare",
    "records",
    "stamp",
    "walk",
]
