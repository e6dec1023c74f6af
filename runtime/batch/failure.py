"""This module defines the errors of a partition's bytes, by topic, partition and offset.

Bad data is never copied.
"""

from runtime.contract.spec.naming import TopicPartition


class BatchFailure(Exception):
    """The partition cannot be copied from this source offset on; the records before it are good."""

    def __init__(self, where: TopicPartition, offset: int, why: str) -> None:
        super().__init__(f"{where} at offset {offset}: {why}")
        self.where = where
        self.offset = offset
        self.why = why


class CorruptBatch(BatchFailure):
    """The bytes do not follow Kafka's format: truncated, a wrong checksum, or lengths that do not fit."""


class TooLarge(BatchFailure):
    """A record exceeds the destination's limit, or a batch the memory of the slot."""

    def __init__(self, where: TopicPartition, offset: int, size: int, limit: int, why: str) -> None:
        super().__init__(where, offset, why)
        self.size = size
        self.limit = limit


class UnpacksTooLarge(TooLarge):
    """A batch that must be rewritten unpacks past the memory bound (R8)."""


class QuarantineTooLarge(TooLarge):
    """A bad record exceeds the limit of its quarantine topic."""


class BadRecord(BatchFailure):
    """A record does not match the format of the flow's transform, or an expression of it fails on it."""
