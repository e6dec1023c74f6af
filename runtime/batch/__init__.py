"""This package parses, filters, rewrites and stamps Kafka record batches as bytes.

See docs/internals/batch.md.
"""

from runtime.batch.failure import (
    BadRecord,
    BatchFailure,
    CorruptBatch,
    QuarantineTooLarge,
    TooLarge,
    UnpacksTooLarge,
)
from runtime.batch.layout import Batch, Codec, LegacySet, RecordSet
from runtime.batch.prepare import needs_rewrite, prepare
from runtime.batch.rewrite import Record, records
from runtime.batch.spec import (
    DroppedRecords,
    Merge,
    OffsetDeltaRun,
    OutgoingBatch,
    PreparedBatches,
    QuarantineLimit,
    RewriteReason,
    RewriteSpec,
)
from runtime.batch.stamp import StampedBatch, next_sequence, stamp
from runtime.batch.walk import AbortedTransactions, WalkedBatches, marker_type, walk

__all__ = [
    "AbortedTransactions",
    "BadRecord",
    "Batch",
    "BatchFailure",
    "Codec",
    "CorruptBatch",
    "DroppedRecords",
    "LegacySet",
    "Merge",
    "OffsetDeltaRun",
    "OutgoingBatch",
    "PreparedBatches",
    "QuarantineLimit",
    "QuarantineTooLarge",
    "Record",
    "RecordSet",
    "RewriteReason",
    "RewriteSpec",
    "StampedBatch",
    "TooLarge",
    "UnpacksTooLarge",
    "WalkedBatches",
    "marker_type",
    "needs_rewrite",
    "next_sequence",
    "prepare",
    "records",
    "stamp",
    "walk",
]
