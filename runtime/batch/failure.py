"""What can be wrong with a partition's bytes, by topic, partition and offset: bad data is never passed on."""

from typing import NamedTuple


class PartitionLocation(NamedTuple):
    """The partition that bytes came from; only for messages."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class BatchFailure(Exception):
    """The partition cannot go on at this source offset; what lies before it is good."""

    def __init__(self, where: PartitionLocation, offset: int, why: str) -> None:
        super().__init__(f"{where} at offset {offset}: {why}")
        self.where = where
        self.offset = offset
        self.why = why


class CorruptBatch(BatchFailure):
    """Bytes that are not what Kafka writes: truncated, a wrong checksum, lengths that do not fit."""


class TooLarge(BatchFailure):
    """A record over the destination's limit, or a batch that unpacks past the memory bound (R8)."""

    def __init__(self, where: PartitionLocation, offset: int, size: int, limit: int, why: str) -> None:
        super().__init__(where, offset, why)
        self.size = size
        self.limit = limit
